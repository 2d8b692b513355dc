#pragma once
// SPDX-License-Identifier: Apache-2.0
// Records the steps that [profile] asks for, and writes them as Chrome traces.

#include <ATen/ATen.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "comm/communicator.hpp"
#include "trace/chrome_trace.hpp"
#include "train/input/settings.hpp"
#include "train/run/detail/operator_profile.hpp"

namespace finetune::train {

/// What to do with a step, by its place among those of this start.
enum class Profiled { no, warmup, active };
Profiled profiled(const ProfileSettings& settings, std::int64_t steps_before);

class Profiler {
 public:
  /// Makes the folder. Where `settings` asks for memory, tensors of a CPU are told apart by what
  /// they are for from here on. Collective on `world`. Throws: comm::AgreedError if a rank is named
  /// that there is not, or the folder cannot be made.
  Profiler(const ProfileSettings& settings, const std::filesystem::path& output,
           const comm::Communicator& world, const std::string& host, at::Device device);
  /// Writes the steps of a window that the run did not fill.
  ~Profiler();
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  /// Warns of windows that a start of so many steps does not reach.
  void announce(std::int64_t num_steps) const;

  /// Lives as long as a step and what is told of it.
  class Step {
   public:
    /// `step` counts from 1 over all starts.
    Step(Profiler& profiler, std::int64_t step);
    ~Step();
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;

    /// The step is done; what follows is no part of it. One that is left before is not counted.
    void done();

   private:
    Profiler& profiler_;
    std::int64_t step_;
    bool is_done_ = false;
    std::optional<trace::Span> span_;
  };

 private:
  void begin(std::int64_t step);
  void end(std::int64_t step);
  void start_window();
  void start_operators();
  void write();
  void write_files();

  ProfileSettings settings_;
  std::filesystem::path folder_;
  bool is_root_;
  at::Device device_;
  bool is_recorded_;            ///< this rank
  bool is_first_recorded_;      ///< it writes what a report draws
  trace::RankTrace about_;      ///< what each of this rank's traces says of it
  std::int64_t num_begun_ = 0;  ///< steps of this start
  bool is_active_ = false;      ///< the window is one that is written
  std::unique_ptr<OperatorProfile> operators_;
};

}  // namespace finetune::train
