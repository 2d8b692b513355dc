#pragma once
// SPDX-License-Identifier: Apache-2.0
// The product with a range of weights, or the sum with biases, and what adapters make of it.

#include <ATen/ATen.h>

#include <optional>
#include <span>
#include <vector>

#include "model/ops.hpp"
#include "model/weights.hpp"

namespace finetune::model {

/// What a product is computed with, in backward too.
struct Projection {
  Weights* weights = nullptr;
  RowRange rows;
  std::optional<DropoutMask> dropout = {};  ///< of what an adapter drops
  Path path = Path::kernels;
  bool uses_adapter = true;

  /// What adapters put on top of the weights, if they are used.
  std::vector<AdaptedPart> adapted() const;
  /// Whether backward needs the product's input.
  bool needs_input() const;
};

struct Projected {
  at::Tensor y_NF;
  /// What backward needs in addition to the input: nothing without an adapter, else its own.
  std::vector<at::Tensor> kept;
};

/// x_ND W^T, as the adapter changes it.
Projected project(const Projection& projection, const at::Tensor& x_ND);

/// dx; adds the gradients of what is trained. `x_ND` may be undefined if it is not needed.
at::Tensor project_backward(const Projection& projection, const at::Tensor& dy_NF,
                            const at::Tensor& x_ND, std::span<const at::Tensor> kept);

/// [F]: biases, as the adapter changes them.
at::Tensor bias_of(const Projection& projection);
/// Adds the gradients of what is trained of a sum with `bias_of`.
void bias_backward(const Projection& projection, const at::Tensor& dy_NF);

}  // namespace finetune::model
