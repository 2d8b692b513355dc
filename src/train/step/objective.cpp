// SPDX-License-Identifier: Apache-2.0
#include "train/step/objective.hpp"

#include <cstdint>
#include <vector>

namespace finetune::train {
namespace {

/// Adds up what scores say of the labels, on the host and in the order of the tokens. Sums are
/// rounded as those of the head's chunks of labelled tokens.
LossSum sum_of(const model::LabelScores& scores, const std::vector<std::int64_t>& labels) {
  // On a GPU the host waits here.
  const at::Tensor log_prob_N = scores.log_prob_N.cpu();
  const float* log_prob = log_prob_N.const_data_ptr<float>();
  LossSum sum;
  double of_chunk = 0;
  std::int64_t num_labels = 0;
  for (std::size_t n = 0; n < labels.size(); ++n) {
    if (labels[n] < 0) continue;
    of_chunk -= log_prob[n];
    if (++num_labels % model::head_chunk_tokens != 0) continue;
    sum.loss += of_chunk;
    of_chunk = 0;
  }
  sum.loss += of_chunk;
  sum.weight = static_cast<double>(num_labels);
  sum.correct_N = scores.is_first_N;
  return sum;
}

class NextTokenLoss final : public Objective {
 public:
  double denominator(const data::StepData& step) const override {
    return static_cast<double>(step.num_trained_tokens);
  }

  LossSum run(PassHead& head, const data::MicroBatch& batch, double scale) const override {
    if (!head.wants_gradient()) return sum_of(head.scores(), batch.labels);
    // Known before the pass: the head's product is computed once.
    const auto options = head.labels_N().options().dtype(at::kFloat);
    return sum_of(head.pull_back(at::full(head.labels_N().sizes(), -scale, options)), batch.labels);
  }
};

}  // namespace

const Objective& next_token_loss() {
  static const NextTokenLoss objective;
  return objective;
}

}  // namespace finetune::train
