#pragma once
// SPDX-License-Identifier: Apache-2.0
// -log p of labels, summed, as the next-token loss has it.

#include <utility>

#include "model/ops.hpp"

namespace finetune::tests {

struct Loss {
  double loss = 0;
  std::int64_t num_labels = 0;
  at::Tensor correct_N;
};

inline Loss sum_of(const model::LabelScores& scores, const at::Tensor& labels_N) {
  return {-scores.log_prob_N.to(at::kDouble).sum().item<double>(),
          labels_N.ge(0).sum().item<std::int64_t>(), scores.is_first_N};
}

template <typename AnyOps>
Loss loss(AnyOps&& ops, const at::Tensor& x_ND, const at::Tensor& labels_N, int row) {
  return sum_of(ops.label_scores(x_ND, labels_N, row), labels_N);
}

/// And writes the gradient of scale * loss to d_x_ND.
template <typename AnyOps>
Loss loss_and_gradient(AnyOps&& ops, const at::Tensor& x_ND, const at::Tensor& labels_N, int row,
                       double scale, at::Tensor& d_x_ND) {
  const at::Tensor d_log_prob_N =
      at::full(labels_N.sizes(), -scale, labels_N.options().dtype(at::kFloat));
  return sum_of(ops.pull_back_label_scores(x_ND, labels_N, row, d_log_prob_N, d_x_ND), labels_N);
}

}  // namespace finetune::tests
