#pragma once
// SPDX-License-Identifier: Apache-2.0
// What a person sees while steps pass: a bar on a terminal, lines elsewhere.

#include <cstdint>
#include <string>

#include "metrics/detail/meter.hpp"
#include "metrics/records.hpp"

namespace finetune::metrics {

/// Only the root rank has one that prints.
class Progress {
 public:
  enum class Style { bar, lines, silent };

  /// `every`: steps between two lines.
  Progress(Style style, std::int64_t num_steps, std::int64_t every);
  /// A bar if a person watches on a terminal, otherwise lines.
  static Style style_of_stdout();

  void step(const StepRecord& record);
  /// Ends the bar's line, so that other output begins on its own.
  void pause();

  const Meter& meter() const { return meter_; }

 private:
  void draw_bar(const StepRecord& record);

  Style style_;
  std::int64_t num_steps_;
  std::int64_t every_;
  std::int64_t columns_;
  Meter meter_;
  bool bar_is_drawn_ = false;
};

/// "1 h 02 min", "3 min 20 s", "12 s".
std::string human_seconds(double seconds);

}  // namespace finetune::metrics
