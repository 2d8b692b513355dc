// SPDX-License-Identifier: Apache-2.0
#include "kernels/adamw.hpp"

#include "kernels/composed.hpp"
#include "unit/kernels/tensors.hpp"

namespace finetune::kernels::test::adamw_test {
namespace {

struct State {
  at::Tensor weight, exp_avg, exp_avg_sq, copy;

  explicit State(std::int64_t count)
      : weight(normal<float>({count}, 1)),
        exp_avg(at::zeros({count}, at::kFloat)),
        exp_avg_sq(at::zeros({count}, at::kFloat)),
        copy(at::zeros({count}, at::kBFloat16)) {}

  /// Spans do not keep a tensor alive, so temporaries are refused.
  AdamWStep<float> step(at::Tensor&& gradient, std::int64_t number) const = delete;
  AdamWStep<float> step(const at::Tensor& gradient, std::int64_t number) const {
    return {.weight = elements<float>(weight),
            .exp_avg = elements<float>(exp_avg),
            .exp_avg_sq = elements<float>(exp_avg_sq),
            .gradient = elements<float>(gradient),
            .weight_bf16 = elements<bf16>(copy),
            .weight_f16 = {},
            .lr = 1e-3,
            .beta1 = 0.9,
            .beta2 = 0.95,
            .epsilon = 1e-8,
            .weight_decay = 0.1,
            .step = number};
  }
};

at::Tensor gradient_at(std::int64_t step, std::int64_t count) {
  return normal<float>({count}, 100 + static_cast<std::uint64_t>(step)) * 0.01;
}

TEST(AdamW, FollowsTorchForTwentySteps) {
  const State ours(37);
  State theirs(37);
  for (std::int64_t step = 1; step <= 20; ++step) {
    const at::Tensor gradient = gradient_at(step, 37);
    adamw(ours.step(gradient, step));
    composed::adamw_(theirs.weight, theirs.exp_avg, theirs.exp_avg_sq, gradient,
                     {1e-3, 0.9, 0.95, 1e-8, 0.1, step});
  }
  // Each step may round differently, by half a step of fp32 on either side.
  constexpr double rounding = 20 * 0x1p-23;
  expect_close(ours.weight, theirs.weight, rounding);
  expect_within(ours.exp_avg, theirs.exp_avg, rounding);  // gradients of both signs
  expect_close(ours.exp_avg_sq, theirs.exp_avg_sq, rounding);
}

TEST(AdamW, OfItsCompositionScalesTheGradientAndRoundsWhatIsBfloat16) {
  State wide(37), scaled(37), narrow(37);
  for (at::Tensor* tensor : {&narrow.weight, &narrow.exp_avg, &narrow.exp_avg_sq})
    *tensor = tensor->to(at::kBFloat16);
  wide.weight = narrow.weight.to(at::kFloat);
  scaled.weight = wide.weight.clone();
  const at::Tensor gradient = gradient_at(1, 37);
  const at::Tensor half = gradient * 0.5;
  composed::adamw_(wide.weight, wide.exp_avg, wide.exp_avg_sq, half,
                   {1e-3, 0.9, 0.95, 1e-8, 0.1, 1});
  composed::adamw_(scaled.weight, scaled.exp_avg, scaled.exp_avg_sq, gradient,
                   {1e-3, 0.9, 0.95, 1e-8, 0.1, 1, 0.5});
  composed::adamw_(narrow.weight, narrow.exp_avg, narrow.exp_avg_sq, half,
                   {1e-3, 0.9, 0.95, 1e-8, 0.1, 1});
  EXPECT_TRUE(same_bits(scaled.weight, wide.weight));
  EXPECT_TRUE(same_bits(narrow.weight, wide.weight.to(at::kBFloat16)));
  EXPECT_TRUE(same_bits(narrow.exp_avg, wide.exp_avg.to(at::kBFloat16)));
  EXPECT_TRUE(same_bits(narrow.exp_avg_sq, wide.exp_avg_sq.to(at::kBFloat16)));
}

TEST(AdamW, FirstStepHasTheSizeOfTheLearningRate) {
  // exp_avg / sqrt(exp_avg_sq) is the gradient's sign once both biases are corrected.
  const State state(3);
  const at::Tensor before = state.weight.clone();
  const at::Tensor gradient = at::tensor({0.5f, -2.0f, 1e-3f});
  AdamWStep<float> step = state.step(gradient, 1);
  step.weight_decay = 0.0;
  adamw(step);
  expect_close(before - state.weight, at::tensor({1e-3f, -1e-3f, 1e-3f}), 2e-4);
}

TEST(AdamW, WritesTheRoundedWeights) {
  const State state(37);
  const at::Tensor gradient = gradient_at(1, 37);
  adamw(state.step(gradient, 1));
  EXPECT_TRUE(same_bits(state.copy, state.weight.to(at::kBFloat16)));
}

TEST(AdamW, WritesTheWeightsRoundedToHalves) {
  const State state(37);
  const at::Tensor gradient = gradient_at(1, 37), copy = at::zeros({37}, at::kHalf);
  AdamWStep<float> step = state.step(gradient, 1);
  step.weight_bf16 = {};
  step.weight_f16 = elements<f16>(copy);
  adamw(step);
  EXPECT_TRUE(same_bits(copy, state.weight.to(at::kHalf)));
}

TEST(AdamW, RoundsEachStoredBf16Once) {
  // One step in fp32 from the same bf16 numbers, and its results rounded.
  const at::ScalarType brain = at::kBFloat16;
  const State wide(37);
  wide.weight.copy_(wide.weight.to(brain));
  wide.exp_avg.copy_(gradient_at(2, 37).to(brain));
  wide.exp_avg_sq.copy_(gradient_at(3, 37).square().to(brain));
  const at::Tensor weight = wide.weight.to(brain), exp_avg = wide.exp_avg.to(brain),
                   exp_avg_sq = wide.exp_avg_sq.to(brain), gradient = gradient_at(4, 37);
  adamw(AdamWStep<bf16>{.weight = elements<bf16>(weight),
                        .exp_avg = elements<bf16>(exp_avg),
                        .exp_avg_sq = elements<bf16>(exp_avg_sq),
                        .gradient = elements<float>(gradient),
                        .weight_bf16 = {},
                        .weight_f16 = {},
                        .lr = 1e-3,
                        .beta1 = 0.9,
                        .beta2 = 0.95,
                        .epsilon = 1e-8,
                        .weight_decay = 0.1,
                        .step = 4});
  adamw(wide.step(gradient, 4));
  EXPECT_TRUE(same_bits(weight, wide.weight.to(brain)));
  EXPECT_TRUE(same_bits(exp_avg, wide.exp_avg.to(brain)));
  EXPECT_TRUE(same_bits(exp_avg_sq, wide.exp_avg_sq.to(brain)));
}

TEST(AdamW, HasTheSameBitsWithoutARoundedCopy) {
  const State with(37), without(37);
  const at::Tensor gradient = gradient_at(1, 37);
  adamw(with.step(gradient, 1));
  AdamWStep<float> step = without.step(gradient, 1);
  step.weight_bf16 = {};
  adamw(step);
  EXPECT_TRUE(same_bits(with.weight, without.weight));
}

TEST(AdamW, ScalesTheGradient) {
  const State scaled(37), plain(37);
  const at::Tensor gradient = gradient_at(1, 37), quarter = gradient * 0.25f;
  AdamWStep<float> step = scaled.step(gradient, 1);
  step.gradient_scale = 0.25f;
  adamw(step);
  adamw(plain.step(quarter, 1));
  EXPECT_TRUE(same_bits(scaled.weight, plain.weight));
  EXPECT_TRUE(same_bits(scaled.exp_avg_sq, plain.exp_avg_sq));
}

TEST(AdamW, AnyCutGivesTheSameBits) {
  const State whole(1003), parts(1003);
  const at::Tensor gradient = gradient_at(1, 1003);
  adamw(whole.step(gradient, 1));
  for (const auto& [begin, count] : {std::pair<std::size_t, std::size_t>{0, 5}, {5, 998}}) {
    AdamWStep<float> step = parts.step(gradient, 1);
    step.weight = step.weight.subspan(begin, count);
    step.exp_avg = step.exp_avg.subspan(begin, count);
    step.exp_avg_sq = step.exp_avg_sq.subspan(begin, count);
    step.gradient = step.gradient.subspan(begin, count);
    step.weight_bf16 = step.weight_bf16.subspan(begin, count);
    adamw(step);
  }
  EXPECT_TRUE(same_bits(whole.weight, parts.weight));
  EXPECT_TRUE(same_bits(whole.exp_avg, parts.exp_avg));
}

TEST(AdamW, GivesTheSameBitsForAnyThreadCount) {
  const at::Tensor gradient = gradient_at(1, 50001);
  expect_same_bits_for_any_thread_count([&] {
    const State state(50001);
    adamw(state.step(gradient, 1));
    return state.weight;
  });
}

TEST(AdamW, StepsCountFromOne) {
  const State state(3);
  const at::Tensor gradient = gradient_at(1, 3);
  EXPECT_ANY_THROW(adamw(state.step(gradient, 0)));
}

}  // namespace
}  // namespace finetune::kernels::test::adamw_test
