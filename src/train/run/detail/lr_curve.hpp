#pragma once
// SPDX-License-Identifier: Apache-2.0
// The loss over rising learning rates, and the learning rate that it speaks for.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plot/smooth.hpp"
#include "train/run/lr_range_settings.hpp"

namespace finetune::train {

/// What follows from a curve.
struct LrAdvice {
  std::optional<double> lr = {};        ///< for optimizer.lr; none: the curve does not say
  std::optional<double> steepest = {};  ///< where the smoothed loss falls fastest
  std::optional<double> lowest = {};    ///< where it is least
  std::string rule = {};                ///< how lr was found, or why there is none
};

/// Grows by a step at a time.
///
/// The loss is smoothed exponentially by 0.9 (plot::smoothed): about ten steps. The advice is a
/// tenth of the learning rate at which it is least, as that lies shortly before training diverges.
/// Sources: Smith 2017, "Cyclical learning rates for training neural networks" (arXiv 1506.01186),
/// for the test; fastai's `lr_find` for the tenth and for the factor that ends it; Lightning's for
/// the steepest descent.
class LrCurve {
 public:
  struct Row {
    std::int64_t step = 0;  ///< counts from 1
    double lr = 0, loss = 0, grad_norm = 0;
    double smoothed = 0;
  };

  static constexpr double smoothing = 0.9;
  /// So many steps are averaged before the curve counts.
  static constexpr std::size_t first_counted = 5;

  explicit LrCurve(LrRange range) : range_(range) {}

  const LrRange& range() const { return range_; }
  const std::vector<Row>& rows() const { return rows_; }
  /// `step` counts from 0, and rises; some may be left out. `loss` is finite.
  const Row& add(std::int64_t step, double loss, double grad_norm);
  /// The smoothed loss is range().stop_factor times its least so far.
  bool has_diverged() const;
  LrAdvice advice() const;

  /// A table of at most `most_rows` rows, evenly spread, and the curve for a terminal.
  std::string table(std::size_t most_rows = 20) const;
  /// Smoothed losses over log10 of the learning rate.
  plot::Points points() const;

 private:
  std::size_t lowest() const;

  LrRange range_;
  std::vector<Row> rows_;
  double sum_ = 0;  ///< of the smoothed loss, with its bias to zero
};

}  // namespace finetune::train
