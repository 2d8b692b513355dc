// SPDX-License-Identifier: Apache-2.0
#include "train/step/objective.hpp"

#include <cstdint>
#include <memory>

#include "shard/host_copy.hpp"

namespace finetune::train {
namespace {

/// Adds up log-probabilities of labels, on the host and in the order of the tokens. Sums are
/// rounded as those of the head's chunks of labelled tokens.
LossSum sum_of(const float* log_prob, const at::Tensor& labels_N) {
  const auto* labels = labels_N.const_data_ptr<std::int64_t>();
  LossSum sum;
  double of_chunk = 0;
  std::int64_t num_labels = 0;
  for (std::int64_t n = 0; n < labels_N.numel(); ++n) {
    if (labels[n] < 0) continue;
    of_chunk -= log_prob[n];
    if (++num_labels % model::head_chunk_tokens != 0) continue;
    sum.loss += of_chunk;
    of_chunk = 0;
  }
  sum.loss += of_chunk;
  sum.weight = static_cast<double>(num_labels);
  return sum;
}

/// The scores set out for the host at once, and are added up when somebody asks.
PendingLoss pending_sum(const model::LabelScores& scores, const at::Tensor& labels_N) {
  using Contents = shard::HostCopy::Contents;
  auto copy = std::make_shared<shard::HostCopy>(scores.log_prob_N, Contents::started);
  return PendingLoss([copy, is_first_N = scores.is_first_N, labels_N] {
    copy->wait();
    LossSum sum = sum_of(copy->host().const_data_ptr<float>(), labels_N);
    sum.correct_N = is_first_N;
    return sum;
  });
}

class NextTokenLoss final : public Objective {
 public:
  double denominator(const data::StepData& step) const override {
    return static_cast<double>(step.num_trained_tokens);
  }

  PendingLoss run(PassHead& head, const data::MicroBatch&, double scale) const override {
    if (!head.wants_gradient()) return pending_sum(head.scores(), head.labels_N());
    // Known before the pass: the head's product is computed once.
    return pending_sum(head.pull_back(head.same_for_all(-scale)), head.labels_N());
  }
};

}  // namespace

const Objective& next_token_loss() {
  static const NextTokenLoss objective;
  return objective;
}

}  // namespace finetune::train
