// SPDX-License-Identifier: Apache-2.0
#include "kernels/lion.hpp"

#include "kernels/composed_lion.hpp"
#include "unit/kernels/tensors.hpp"

namespace finetune::kernels::test::lion_test {
namespace {

struct State {
  at::Tensor weight, exp_avg, copy;

  explicit State(std::int64_t count, at::ScalarType dtype = at::kFloat)
      : weight(normal<float>({count}, 1).to(dtype)),
        exp_avg((normal<float>({count}, 2) * 0.01).to(dtype)),
        copy(at::zeros({count}, at::kBFloat16)) {}

  /// Spans do not keep a tensor alive, so temporaries are refused.
  template <class T>
  LionStep<T> step(at::Tensor&& gradient) const = delete;
  template <class T>
  LionStep<T> step(const at::Tensor& gradient) const {
    return {.weight = elements<T>(weight),
            .exp_avg = elements<T>(exp_avg),
            .gradient = elements<float>(gradient),
            .weight_bf16 = elements<bf16>(copy),
            .lr = 1e-3,
            .beta1 = 0.9,
            .beta2 = 0.99,
            .weight_decay = 0.1,
            .index = 1000};
  }
};

at::Tensor gradient_at(std::int64_t step, std::int64_t count) {
  return normal<float>({count}, 100 + static_cast<std::uint64_t>(step)) * 0.01;
}

const composed::LionNumbers numbers = {
    .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.1, .index = 1000};

/// Program 1 of the paper in double, written down: three steps of four weights with lr 0.01.
TEST(Lion, HasTheNumbersOfThePaper) {
  State state(4);
  state.weight = at::tensor({0.5f, -1.0f, 2.0f, 0.25f});
  state.exp_avg.zero_();
  for (const at::Tensor& gradient :
       {at::tensor({0.5f, -2.0f, 0.0f, 1e-3f}), at::tensor({-0.1f, 1.0f, 0.25f, -2e-3f}),
        at::tensor({-0.7f, 0.5f, -0.25f, 5e-4f})}) {
    LionStep<float> step = state.step<float>(gradient);
    step.lr = 0.01;
    lion(step);
  }
  expect_close(state.weight, at::tensor({0.508511489f, -1.00701299f, 1.994016f, 0.23926074f}),
               1e-6);
  expect_close(state.exp_avg, at::tensor({-0.0030895f, -0.004702f, -2.5e-05f, -4.999e-06f}), 1e-5);
}

TEST(Lion, FollowsItsCompositionForTwentySteps) {
  const State ours(1003);
  State theirs(1003);
  for (std::int64_t step = 1; step <= 20; ++step) {
    const at::Tensor gradient = gradient_at(step, 1003);
    lion(ours.step<float>(gradient));
    composed::lion_(theirs.weight, theirs.exp_avg, gradient, numbers);
  }
  expect_close(ours.weight, theirs.weight, 1e-6);
  expect_close(ours.exp_avg, theirs.exp_avg, 1e-5);
}

TEST(Lion, LeavesWhatHasNoDirection) {
  const State state(3);
  state.exp_avg.zero_();
  const at::Tensor before = state.weight.clone(), gradient = at::zeros({3});
  LionStep<float> step = state.step<float>(gradient);
  step.weight_decay = 0;
  lion(step);
  EXPECT_TRUE(same_bits(state.weight, before));
}

TEST(Lion, WritesTheRoundedWeights) {
  const State state(37);
  const at::Tensor gradient = gradient_at(1, 37), copy = at::zeros({37}, at::kHalf);
  lion(state.step<float>(gradient));
  EXPECT_TRUE(same_bits(state.copy, state.weight.to(at::kBFloat16)));
  LionStep<float> step = state.step<float>(gradient);
  step.weight_bf16 = {};
  step.weight_f16 = elements<f16>(copy);
  lion(step);
  EXPECT_TRUE(same_bits(copy, state.weight.to(at::kHalf)));
}

TEST(Lion, RoundsEachStoredBf16Once) {
  const State narrow(37, at::kBFloat16);
  State wide(37);
  wide.weight = narrow.weight.to(at::kFloat);
  wide.exp_avg = narrow.exp_avg.to(at::kFloat);
  const at::Tensor gradient = gradient_at(4, 37);
  lion(narrow.step<bf16>(gradient));
  lion(wide.step<float>(gradient));
  EXPECT_TRUE(same_bits(narrow.weight, wide.weight.to(at::kBFloat16)));
  EXPECT_TRUE(same_bits(narrow.exp_avg, wide.exp_avg.to(at::kBFloat16)));
}

TEST(Lion, ScalesTheGradient) {
  const State scaled(37);
  State plain(37), composition(37);
  const at::Tensor gradient = gradient_at(1, 37), quarter = gradient * 0.25f;
  LionStep<float> step = scaled.step<float>(gradient);
  step.gradient_scale = 0.25f;
  lion(step);
  lion(plain.step<float>(quarter));
  EXPECT_TRUE(same_bits(scaled.weight, plain.weight));
  EXPECT_TRUE(same_bits(scaled.exp_avg, plain.exp_avg));
  composed::LionNumbers by = numbers;
  by.gradient_scale = 0.25;
  composed::lion_(composition.weight, composition.exp_avg, gradient, by);
  expect_close(composition.exp_avg, plain.exp_avg, 1e-6);
}

TEST(Lion, AnyCutGivesTheSameBits) {
  for (const bool is_stochastic : {false, true}) {
    const State whole(1003, at::kBFloat16), parts(1003, at::kBFloat16);
    const at::Tensor gradient = gradient_at(1, 1003);
    const auto make = [&](const State& state) {
      LionStep<bf16> step = state.step<bf16>(gradient);
      if (is_stochastic) step.rounding = RoundingKey{9, 3};
      return step;
    };
    lion(make(whole));
    for (const auto& [begin, count] : {std::pair<std::size_t, std::size_t>{0, 5}, {5, 998}}) {
      LionStep<bf16> step = make(parts);
      step.weight = step.weight.subspan(begin, count);
      step.exp_avg = step.exp_avg.subspan(begin, count);
      step.gradient = step.gradient.subspan(begin, count);
      step.weight_bf16 = step.weight_bf16.subspan(begin, count);
      step.index += static_cast<std::int64_t>(begin);
      lion(step);
    }
    EXPECT_TRUE(same_bits(whole.weight, parts.weight));
    EXPECT_TRUE(same_bits(whole.exp_avg, parts.exp_avg));
  }
}

TEST(Lion, GivesTheSameBitsForAnyThreadCount) {
  const at::Tensor gradient = gradient_at(1, 50001);
  expect_same_bits_for_any_thread_count([&] {
    const State state(50001);
    lion(state.step<float>(gradient));
    return state.weight;
  });
}

/// Ten thousand weights of 1, whose neighbour below lies 0.0039 away, each to be lowered by 1e-5 in
/// each of 100 steps.
TEST(StochasticLion, KeepsUpdatesThatAreSmallerThanALastDigit) {
  const at::Tensor gradient = at::ones({10000});
  for (const bool is_stochastic : {false, true}) {
    const State state(10000, at::kBFloat16);
    state.weight.fill_(1);
    state.exp_avg.zero_();
    for (std::int64_t i = 0; i < 100; ++i) {
      LionStep<bf16> step = state.step<bf16>(gradient);
      step.weight_bf16 = {};
      step.lr = 1e-5;
      step.weight_decay = 0;
      if (is_stochastic) step.rounding = RoundingKey{9, i};
      lion(step);
    }
    const double moved = 1 - state.weight.to(at::kDouble).mean().item<double>();
    EXPECT_NEAR(moved, is_stochastic ? 1e-3 : 0.0, is_stochastic ? 1e-4 : 0.0);
  }
}

TEST(StochasticLion, FollowsItsComposition) {
  State ours(5000, at::kBFloat16), theirs(5000, at::kBFloat16);
  for (std::int64_t i = 0; i < 3; ++i) {
    const at::Tensor gradient = gradient_at(i, 5000);
    theirs.weight.copy_(ours.weight);
    theirs.exp_avg.copy_(ours.exp_avg);
    LionStep<bf16> step = ours.step<bf16>(gradient);
    step.rounding = RoundingKey{9, i};
    lion(step);
    EXPECT_TRUE(same_bits(ours.copy, ours.weight)) << "the copy is of what was stored";
    composed::LionNumbers by = numbers;
    by.rounding = RoundingKey{9, i};
    composed::lion_(theirs.weight, theirs.exp_avg, gradient, by);
    // The last bit of a wide number decides once in 65,536 (or 256) roundings.
    EXPECT_LE((ours.weight != theirs.weight).sum().item<int>(), 3);
    EXPECT_LE((ours.exp_avg != theirs.exp_avg).sum().item<int>(), 3);
  }
}

}  // namespace
}  // namespace finetune::kernels::test::lion_test
