#pragma once
// SPDX-License-Identifier: Apache-2.0
// Timing of what the device under test computes, and the figures that come of it.

#include <ATen/ATen.h>

#include <cstdint>
#include <fstream>
#include <functional>
#include <string>

#include "core/clock.hpp"

namespace finetune::tests::gpu {

/// full: sizes of the models that are trained. tiny: the same work in an instant, to rehearse.
enum class Size { full, tiny };

struct BenchOptions {
  Size size = Size::full;
  double budget_s = 240;       ///< what has not begun by then is left out, with a line
  std::string filter = {};     ///< only figures whose name contains it
  std::string json_path = {};  ///< gets a line of JSON per figure; empty: none
};

/// What a call of the timed function does.
struct Work {
  double flops = 0;
  double bytes = 0;  ///< that have to be read and written once
  /// That the plan counts; the figure says how many times as long it takes as copying them, which
  /// is what the plan takes it for. 0: it is not a pass of the plan's.
  double planned_bytes = 0;
};

/// Where only CUDA has an operation, a rehearsal on another device leaves it out.
enum class Where { anywhere, cuda };

/// Prints a line of a table per figure and keeps count of what went wrong.
class Bench {
 public:
  explicit Bench(const BenchOptions& options);

  bool is_tiny() const { return options_.size == Size::tiny; }
  /// `full`, or in a rehearsal `tiny`.
  std::int64_t size(std::int64_t full, std::int64_t tiny) const { return is_tiny() ? tiny : full; }

  /// Normal numbers on the device, the same in every run.
  at::Tensor numbers(at::IntArrayRef shape, at::ScalarType dtype = at::kBFloat16) const;

  /// Calls `prepare` once, and what it returns again and again: three times unheeded, then until
  /// half a second is spent (at least 5 times, at most 50). The figure is the median, by events of
  /// the device's stream around each call.
  using Timed = std::function<void()>;
  void time(const std::string& name, const Work& work, const std::function<Timed()>& prepare,
            Where where = Where::anywhere);
  /// The host's time until the device is done with one call of `f`: what a first call costs.
  void once(const std::string& name, const Timed& f, Where where = Where::anywhere);

  /// A figure that was measured elsewhere.
  void report(const std::string& name, double value, const std::string& unit);

  int num_figures() const { return num_figures_; }
  int num_failures() const { return num_failures_; }

 private:
  bool is_due(const std::string& name, Where where);
  /// Times as long as a copy of what is planned, at the rate of copies of this run; 0: not known.
  double of_plan(double median_ms, const Work& work) const;
  void write(const std::string& name, double median_ms, double least_ms, double most_ms,
             const Work& work);
  /// Runs `f`; a failure is a line and counts.
  void guarded(const std::string& name, const Timed& f);

  BenchOptions options_;
  core::Stopwatch watch_;
  std::ofstream json_;
  std::string date_;
  double copied_gb_per_s_ = 0;
  int num_figures_ = 0, num_failures_ = 0;
};

/// The copy on the device, beside which passes are judged.
inline constexpr const char* device_copy = "copy/on_device";

void bench_products(Bench& bench);
void bench_attention(Bench& bench);
void bench_ops(Bench& bench);
void bench_updates(Bench& bench);

}  // namespace finetune::tests::gpu
