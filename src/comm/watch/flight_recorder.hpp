#pragma once
// SPDX-License-Identifier: Apache-2.0
// Writes what a rank did last to a file when its run hangs, fails, or is asked by SIGUSR2.

#include <condition_variable>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/activity.hpp"

namespace finetune::comm {

/// In train.output.
inline constexpr const char* flight_folder_name = "flight";
/// Beside it, with those of an earlier start.
inline constexpr const char* earlier_flight_folder_name = "flight.before";
/// Reasons that are no error of the rank that writes.
inline constexpr const char* asked_by_signal = "SIGUSR2";
inline constexpr const char* asked_by_watchdog = "a rank waits for too long";
inline constexpr const char* asked_by_rank = "asked by rank ";

/// What another rank last said about itself.
struct Heard {
  int rank = 0;
  std::string host;
  double silent_s = 0;  ///< since then
  Doing main;
  Doing stream;
};

/// The last collectives of this rank (Activity::last) as a file of JSON lines, rank-00003.jsonl:
/// first a line about the rank, its `counts` per axis and group included, then one per rank that
/// was `heard` of, then one per collective, the newest first, so that a file that was cut short
/// has what matters most. Times are seconds before the writing.
///
/// A thread of its own writes: whoever asks waits no longer than it wants to, whatever the file
/// system does, and computation never waits.
class FlightRecorder {
 public:
  FlightRecorder(const Activity& activity, int rank, int num_ranks, std::string host);
  ~FlightRecorder();
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  /// From now on SIGUSR2 does not end this process, and asks for the file as soon as a recorder has
  /// a folder.
  static void catch_signal();

  /// Starts the thread. `folder` is made when it is first needed.
  void write_to(std::filesystem::path folder);

  /// Asks for the file and waits for it, for `limit_s` at most. Returns whether it is written.
  bool write(const std::string& reason, double limit_s, std::vector<Heard> heard = {});

  /// The same on every rank that can be reached: `call` tells the others; null: nobody does.
  void set_call(std::function<void()> call);
  void write_everywhere(const std::string& reason, double limit_s);

  /// Where files are; empty without a folder.
  std::filesystem::path folder() const;

 private:
  struct Wish {
    std::string reason;
    std::vector<Heard> heard;
  };

  void run();
  void write_file(const Wish& wish) const;

  const Activity& activity_;
  int rank_;
  int num_ranks_;
  std::string host_;

  mutable std::mutex mutex_;
  std::condition_variable written_;
  std::filesystem::path folder_;
  std::vector<Wish> wishes_;
  std::int64_t num_asked_ = 0;
  std::int64_t num_done_ = 0;
  bool is_closing_ = false;
  std::function<void()> call_;
  std::thread thread_;
};

}  // namespace finetune::comm
