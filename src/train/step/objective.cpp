// SPDX-License-Identifier: Apache-2.0
#include "train/step/objective.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>

#include "core/error.hpp"
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

class PreferenceLoss final : public Objective {
 public:
  double denominator(const data::StepData& step) const override {
    return static_cast<double>(step.num_trained_tokens) / 2;
  }

  PendingLoss run(PassHead& head, const data::MicroBatch&, double scale) const override {
    const at::Tensor rewards = head.scores().log_prob_N.to(at::kCPU).contiguous();
    const float* reward = rewards.const_data_ptr<float>();
    const at::Tensor& labels_N = head.labels_N();
    const auto* labels = labels_N.const_data_ptr<std::int64_t>();
    LossSum sum{.correct_N = at::ones({labels_N.numel()}, at::kBool)};
    at::Tensor d_reward = at::zeros({labels_N.numel()}, at::kFloat);
    auto* is_right = sum.correct_N.data_ptr<bool>();
    auto* slope = d_reward.data_ptr<float>();
    std::int64_t preferred = -1;
    for (std::int64_t n = 0; n < labels_N.numel(); ++n) {
      if (labels[n] < 0) continue;
      core::check((labels[n] == 1) == (preferred < 0), "of two texts the preferred one is first");
      if (labels[n] == 1) {
        preferred = n;
        continue;
      }
      const double margin = double{reward[preferred]} - reward[n];
      sum.loss += std::max(0.0, -margin) + std::log1p(std::exp(-std::abs(margin)));
      sum.weight += 1;
      // A sample counts once: by its preferred text.
      is_right[preferred] = margin > 0;
      is_right[n] = false;
      slope[n] = static_cast<float>(scale / (1 + std::exp(margin)));
      slope[preferred] = -slope[n];
      preferred = -1;
    }
    core::check(preferred < 0, "a preferred text has another beside it");
    // Losses go down as the preferred one's reward goes up.
    if (head.wants_gradient()) head.pull_back(d_reward.to(head.device()));
    return sum;
  }
};

}  // namespace

const Objective& preference_loss() {
  static const PreferenceLoss objective;
  return objective;
}

const Objective& next_token_loss() {
  static const NextTokenLoss objective;
  return objective;
}

}  // namespace finetune::train
