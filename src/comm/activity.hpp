#pragma once
// SPDX-License-Identifier: Apache-2.0
// What this rank's threads are doing, for the watchdog.

#include <array>
#include <cstdint>
#include <mutex>
#include <string>

#include "core/clock.hpp"

namespace finetune::comm {

/// The two threads of a rank that communicate: the one that computes, and the one of the stream.
enum class Track { main, stream };

/// A moment of one track.
struct Doing {
  std::int64_t step = 0;      ///< optimizer step, counts from 1; 0 before the first
  std::int64_t sequence = 0;  ///< collectives this track has entered so far
  bool is_inside = false;     ///< of the last of them
  std::string collective;     ///< its name: "all_gather"
  std::string axis;           ///< and its communicator's: "fsdp"
  double seconds = 0;         ///< since it was entered or left
};

/// Written by the tracks, read by the watchdog. Thread-safe.
class Activity {
 public:
  void set_step(std::int64_t step);
  void enter(Track track, const char* collective, const std::string& axis);
  void leave(Track track);
  Doing look(Track track) const;

  /// Inside a collective for as long as this lives. `activity` may be null.
  class Scope {
   public:
    Scope(Activity* activity, Track track, const char* collective, const std::string& axis)
        : activity_(activity), track_(track) {
      if (activity_ != nullptr) activity_->enter(track, collective, axis);
    }
    ~Scope() {
      if (activity_ != nullptr) activity_->leave(track_);
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Activity* activity_;
    Track track_;
  };

 private:
  struct State {
    std::int64_t sequence = 0;
    bool is_inside = false;
    const char* collective = "";
    std::string axis;
    core::Stopwatch since;
  };

  mutable std::mutex mutex_;
  std::int64_t step_ = 0;
  std::array<State, 2> states_;
};

}  // namespace finetune::comm
