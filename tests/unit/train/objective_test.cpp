// SPDX-License-Identifier: Apache-2.0
// An objective that is no sum over tokens: its gradient is known only after all scores of a row.
#include "train/step/objective.hpp"

#include <gtest/gtest.h>

#include "support/tiny_model.hpp"

namespace finetune::train::objective_test {
namespace {

using tests::TinyModel;

constexpr double beta = 0.3;

/// log(1 + exp(-beta * log p(row))), summed over the rows of a batch, as preference losses have it
/// of differences.
class RowLoss final : public Objective {
 public:
  double denominator(const data::StepData& step) const override {
    return static_cast<double>(step.num_samples);
  }

  PendingLoss run(PassHead& head, const data::MicroBatch& batch, double scale) const override {
    const model::LabelScores scores = head.scores();
    const at::Tensor of_rows = scores.log_prob_N.view({batch.batch, batch.length}).sum(1);
    const at::Tensor loss = at::softplus(-beta * of_rows);
    if (head.wants_gradient()) {
      const at::Tensor d_rows = -beta * at::sigmoid(-beta * of_rows) * scale;
      head.pull_back(d_rows.repeat_interleave(batch.length));
    }
    return LossSum{loss.sum().item<double>(), static_cast<double>(batch.batch), scores.is_first_N};
  }
};

data::MicroBatch two_rows() {
  return {.batch = 2,
          .length = 5,
          .ids = {1, 4, 9, 2, 0, 3, 3, 10, 7, 5},
          .labels = {-100, 9, 2, 0, 6, -100, -100, 7, 5, 1}};
}

/// The tiny model's engine, with another objective.
Engine engine_of(TinyModel& tiny, const Objective& objective) {
  return {.architecture = tiny.architecture,
          .model = *tiny.model,
          .ops = tiny.ops,
          .shards = tiny.shards,
          .objective = objective};
}

TEST(Objective, NextTokenLossIsDividedByTheTrainedTokens) {
  data::StepData step;
  step.num_trained_tokens = 7;
  step.num_samples = 2;
  EXPECT_EQ(next_token_loss().denominator(step), 7);
}

TEST(Objective, NextTokenLossCountsWhatHasALabel) {
  TinyModel tiny{comm::Communicator()};
  const LossSum sum = forward(tiny.engine(), two_rows());
  EXPECT_EQ(sum.weight, 7);
  EXPECT_EQ(sum.correct_N.numel(), 10);
  EXPECT_TRUE(sum.correct_N[0].item<bool>()) << "there is nothing to get wrong";
}

/// Backward through head, blocks and embedding.
TEST(Objective, OfWholeRowsHasTheSlopesOfItsLoss) {
  const RowLoss objective;
  TinyModel tiny{comm::Communicator()};
  const Engine engine = engine_of(tiny, objective);
  const LossSum sum = forward_backward(engine, two_rows(), 1.0);
  EXPECT_EQ(sum.weight, 2);
  EXPECT_NEAR(sum.loss, forward(engine, two_rows()).loss, 1e-6);
  const double largest =
      tests::expect_slopes(tiny, 5, [&] { return forward(engine, two_rows()).loss; });
  EXPECT_GT(largest, 0.1) << "the test sees a gradient";
}

/// A rank without rows takes part, and shards have the gradient of one rank.
TEST(Objective, OfWholeRowsIsTheSameOnAnyRanks) {
  const RowLoss objective;
  TinyModel alone{comm::Communicator()};
  forward_backward(engine_of(alone, objective), two_rows(), 0.5);
  const tests::Elements expected = alone.gradients();
  TinyModel tiny(tests::world());
  const bool has_rows = tests::world().rank() == 0;
  const auto rows = has_rows ? std::optional(two_rows()) : std::nullopt;
  const LossSum sum = forward_backward(engine_of(tiny, objective), rows, 0.5);
  EXPECT_EQ(sum.weight, has_rows ? 2 : 0);
  tiny.for_each_gradient([&](int row, std::int64_t i, float gradient) {
    EXPECT_NEAR(gradient, (expected.at({row, i})), 1e-6) << "row " << row << ", element " << i;
  });
}

}  // namespace
}  // namespace finetune::train::objective_test
