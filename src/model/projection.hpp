#pragma once
// SPDX-License-Identifier: Apache-2.0
// The product with a range of weights and what adapters add to it. Private to model.

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
  std::optional<Dropout> dropout = {};  ///< of the low-rank parts' input
  Path path = Path::kernels;
  bool uses_adapter = true;

  /// The low-rank parts on top of the weights, if they are used.
  std::vector<LowRankPart> low_rank() const;
  /// Whether backward needs the product's input.
  bool needs_input() const;
};

struct Projected {
  at::Tensor y_NF;
  /// What backward needs in addition to the input: nothing without low-rank parts. {low [N, k r],
  /// and with magnitudes: the sum before they scale it [N, F], the norms of its weights' rows [F]
  /// fp32}.
  std::vector<at::Tensor> kept;
};

/// x_ND W^T + scale (x A^T) B^T, for each matrix of the rows. x is read once for all A.
Projected project(const Projection& projection, const at::Tensor& x_ND);

/// dx; adds the gradients of what is trained. `x_ND` may be undefined if it is not needed.
at::Tensor project_backward(const Projection& projection, const at::Tensor& dy_NF,
                            const at::Tensor& x_ND, std::span<const at::Tensor> kept);

/// Norms of the rows of W + scale B A, fp32 [out]. Source: Liu et al. 2024 (arXiv 2402.09353).
at::Tensor adapted_row_norms(const at::Tensor& w_FD, const at::Tensor& a_RD, const at::Tensor& b_FR,
                             double scale, Path path = Path::kernels);

}  // namespace finetune::model
