#pragma once
// SPDX-License-Identifier: Apache-2.0
// The seam between model code and whoever keeps the weights.

#include <ATen/ATen.h>

#include "model/parameter_table.hpp"

namespace finetune::model {

/// Where an op adds the gradient of a weight.
struct GradientSlot {
  at::Tensor tensor;  ///< shaped like the weight; undefined if the weight is frozen or no gradient
                      ///< is wanted
  bool accumulate = false;  ///< false: the slot holds nothing yet and is overwritten
};

/// Gathered weights and their gradient buffers, addressed by row of the ParameterTable. Valid while
/// the unit of the row is open.
class Weights {
 public:
  virtual ~Weights() = default;

  /// Shape: the row's; of several rows [sum of dim 0, dim 1]. Dtype: of the computation.
  virtual at::Tensor weight(RowRange rows) const = 0;

  /// The slot of a row's gradient; marks it as written.
  virtual GradientSlot gradient(RowRange rows) = 0;
};

}  // namespace finetune::model
