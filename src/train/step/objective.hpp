#pragma once
// SPDX-License-Identifier: Apache-2.0
// What training minimises: a function of the log-probabilities of labels, and the next-token loss,
// which is one.

#include <ATen/ATen.h>

#include <functional>
#include <utility>

#include "data/steps/micro_batch.hpp"
#include "data/steps/stream.hpp"
#include "model/ops.hpp"

namespace finetune::train {

/// Sums over the tokens of a pass.
struct LossSum {
  double loss = 0;    ///< of the terms; divided by a denominator, it is what is reported
  double weight = 0;  ///< of the terms; over a step they add up to the denominator
  /// [N] bool: the label is the most likely token; true where there is none.
  at::Tensor correct_N;
};

/// The loss of a pass, which a device may still be computing. What it was made of outlives it.
class PendingLoss {
 public:
  /// Of nothing.
  PendingLoss() = default;
  PendingLoss(LossSum known) : known_(std::move(known)) {}
  /// `finish` waits for the device where it has to, and is called once.
  explicit PendingLoss(std::function<LossSum()> finish) : finish_(std::move(finish)) {}

  LossSum wait() {
    if (finish_) known_ = std::exchange(finish_, nullptr)();
    return known_;
  }

 private:
  LossSum known_;
  std::function<LossSum()> finish_;
};

/// The end of a pass as an objective sees it. The logits of all tokens never exist.
class PassHead {
 public:
  /// `x_ND`: the final norm's output; labels_N int64 on the host, -100: none. All outlive this.
  PassHead(model::Ops& ops, int row, const at::Tensor& x_ND, const at::Tensor& labels_N,
           bool wants_gradient)
      : ops_(ops), row_(row), x_ND_(x_ND), labels_N_(labels_N), wants_gradient_(wants_gradient) {}

  const at::Tensor& labels_N() const { return labels_N_; }
  /// What pull_back takes, of one value: [N] fp32, where the head is computed.
  at::Tensor same_for_all(double d_log_prob) const {
    return at::full(labels_N_.sizes(), d_log_prob, x_ND_.options().dtype(at::kFloat));
  }
  at::Device device() const { return x_ND_.device(); }
  /// Whether the objective has to pull back its gradient, once.
  bool wants_gradient() const { return wants_gradient_; }

  /// For objectives whose gradient depends on all scores of a pass; the head's product is computed
  /// again to pull it back.
  model::LabelScores scores() const { return ops_.label_scores(x_ND_, labels_N_, row_); }

  /// Scores, with the gradient of the sum of d_log_prob_N [N] fp32 * their log_prob_N.
  model::LabelScores pull_back(const at::Tensor& d_log_prob_N) {
    return ops_.pull_back_label_scores(x_ND_, labels_N_, row_, d_log_prob_N, d_x_ND_);
  }
  /// Of x_ND; undefined before pull_back.
  const at::Tensor& d_x_ND() const { return d_x_ND_; }

 private:
  model::Ops& ops_;
  int row_;
  const at::Tensor& x_ND_;
  const at::Tensor& labels_N_;
  bool wants_gradient_;
  at::Tensor d_x_ND_;
};

/// The same on every rank, and without state: passes may come in any order.
class Objective {
 public:
  virtual ~Objective() = default;

  /// What a step's sum over all ranks and passes is divided by; known before its first pass.
  virtual double denominator(const data::StepData& step) const = 0;

  /// The terms of a pass: of the head's labels, which are those of this rank's tokens where ranks
  /// share the micro-batch. Pulls back `scale` times the gradient of their sum if the head wants
  /// one. `batch` outlives what is returned.
  virtual PendingLoss run(PassHead& head, const data::MicroBatch& batch, double scale) const = 0;
};

/// -log sigmoid(preferred - other) of each pair of texts, whose rewards are the scores of their
/// labels, 1 and 0, in this order. Source: Ouyang et al. 2022 (arXiv 2203.02155).
const Objective& preference_loss();

/// -log p(label), summed over the trained tokens: pre-training and supervised fine-tuning.
const Objective& next_token_loss();

}  // namespace finetune::train
