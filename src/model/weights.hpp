#pragma once
// SPDX-License-Identifier: Apache-2.0
// The seam between model code and the owner of the weights.

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "core/error.hpp"
#include "model/parameter_table.hpp"
#include "model/weight.hpp"

namespace finetune::model {

/// Where an op adds the gradient of a weight.
struct GradientSlot {
  at::Tensor tensor;  ///< shaped like the weight; undefined if the weight is frozen or no gradient
                      ///< is wanted
  bool accumulate = false;  ///< false: the slot holds nothing yet and is overwritten
};

/// What an adapter puts on top of one row of a range, and which outputs of the range's product it
/// changes.
struct AdaptedPart {
  int row = 0;
  const Adapted* adapted = nullptr;  ///< the table's
  std::int64_t first_output = 0;
  std::int64_t num_outputs = 0;
};

/// Neighbouring trained rows of a range.
struct TrainedPart {
  RowRange rows;
  std::int64_t first_output = 0;
  std::int64_t num_outputs = 0;  ///< 0: all
};

/// Ranges of the same shapes, each `stride` rows behind the one before: a layer's experts.
struct RowSeries {
  RowRange first;
  int stride = 0;
  std::int64_t num = 1;

  RowRange at(std::int64_t i) const {
    return {first.first + static_cast<int>(i) * stride, first.num};
  }
};

/// Gathered weights and their gradient buffers, addressed by row of the ParameterTable. Valid while
/// the unit of the row is open.
class Weights {
 public:
  virtual ~Weights() = default;

  /// Shape: the row's; of several rows [sum of dim 0, dim 1]. Dtype: of the computation. What is
  /// packed, or trained in part, is put together in fresh memory by each call.
  virtual at::Tensor weight(RowRange rows) const = 0;

  /// The same for a product, which unpacks what it has to.
  virtual Weight matrix(RowRange rows) const { return {weight(rows)}; }

  /// The slot of the gradient of rows that are all trained, or all frozen; marks it as written.
  virtual GradientSlot gradient(RowRange rows) = 0;

  /// The matrices of a series as views with a dim more, [num, ...]: `dense` or, in 8 bits,
  /// `quantised`; neither where they are packed or do not lie at one distance.
  virtual Weight series(const RowSeries&) const { return {}; }

  /// Whether the gradients of a series lie at one distance, for `series_gradient`.
  virtual bool has_series_gradient(const RowSeries&) const { return false; }
  /// As `gradient`, of all ranges of such a series: [num, out, in].
  virtual GradientSlot series_gradient(const RowSeries&) {
    core::check(false, "a series without a view has no gradient of its own");
    return {};
  }

  /// Which of the rows have a slot, neighbours together, and which outputs of the range's product
  /// they make (none: all of them). What is frozen has no slot, and its input need not be kept.
  virtual std::vector<TrainedPart> trained(RowRange rows) const { return {{rows, 0, 0}}; }

  /// On top of `rows`, in their order. All are of one adapter.
  virtual std::vector<AdaptedPart> adapted(RowRange) const { return {}; }
};

}  // namespace finetune::model
