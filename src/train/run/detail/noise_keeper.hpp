#pragma once
// SPDX-License-Identifier: Apache-2.0
// The gradient noise scale, smoothed over the steps of a run.

#include <cstdint>
#include <optional>

#include "core/json.hpp"
#include "metrics/records.hpp"
#include "train/step/noise.hpp"

namespace finetune::train {

/// Smooths the trace and the square of the gradient each by itself, exponentially by 0.9 and
/// without a bias to zero: the mean of quotients would be none. Source: McCandlish et al. 2018
/// (arXiv 1812.06162), appendix A.1.
class NoiseKeeper {
 public:
  static constexpr double smoothing = 0.9;

  /// `state`: what to_json wrote, or null.
  explicit NoiseKeeper(const core::Json& state = {});

  /// `num_sequences` of the step that was measured.
  metrics::NoiseReport add(const NoiseEstimate& step, std::int64_t num_sequences);

  /// Nothing where nothing was measured.
  std::optional<core::Json> to_json() const;

 private:
  double trace_ = 0, squares_ = 0;  ///< with their bias
  double weight_ = 0;               ///< of all steps in them: 1 - smoothing^n
};

}  // namespace finetune::train
