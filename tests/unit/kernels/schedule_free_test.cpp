// SPDX-License-Identifier: Apache-2.0
#include "kernels/schedule_free.hpp"

#include "kernels/composed_schedule_free.hpp"
#include "unit/kernels/tensors.hpp"

namespace finetune::kernels::test::schedule_free_test {
namespace {

constexpr std::int64_t count = 1003;

struct State {
  at::Tensor y, z, v, copy = at::zeros({count}, at::kBFloat16);

  explicit State(at::ScalarType dtype = at::kFloat)
      : y(normal<float>({count}, 1).to(dtype)),
        z(normal<float>({count}, 2).to(dtype)),
        v((normal<float>({count}, 3).square() * 1e-4).to(dtype)) {}

  template <class T>
  ScheduleFreeStep<T> step(at::Tensor&& gradient, std::int64_t number) const = delete;
  template <class T>
  ScheduleFreeStep<T> step(const at::Tensor& gradient, std::int64_t number) const {
    return {.weight = elements<T>(y),
            .z = elements<T>(z),
            .exp_avg_sq = elements<T>(v),
            .gradient = elements<float>(gradient),
            .weight_bf16 = elements<bf16>(copy),
            .lr = 1e-2,
            .beta1 = 0.9,
            .beta2 = 0.98,
            .epsilon = 1e-6,
            .weight_decay = 0.1,
            .average = 1.0 / static_cast<double>(number),
            .step = number,
            .gradient_scale = 0.5f,
            .index = 1000};
  }
};

composed::ScheduleFreeNumbers numbers(std::int64_t number) {
  return {.lr = 1e-2,
          .beta1 = 0.9,
          .beta2 = 0.98,
          .epsilon = 1e-6,
          .weight_decay = 0.1,
          .average = 1.0 / static_cast<double>(number),
          .step = number,
          .gradient_scale = 0.5,
          .index = 1000};
}

at::Tensor gradient_at(std::int64_t step) {
  return normal<float>({count}, 100 + static_cast<std::uint64_t>(step)) * 0.01;
}

TEST(ScheduleFree, FollowsItsCompositionForTwentySteps) {
  const State ours;
  State theirs;
  for (std::int64_t step = 1; step <= 20; ++step) {
    const at::Tensor gradient = gradient_at(step);
    schedule_free(ours.step<float>(gradient, step));
    composed::schedule_free_(theirs.y, theirs.z, theirs.v, gradient, numbers(step));
  }
  EXPECT_TRUE(at::allclose(ours.y, theirs.y, 1e-5, 1e-6));
  EXPECT_TRUE(at::allclose(ours.z, theirs.z, 1e-5, 1e-6));
  EXPECT_TRUE(at::allclose(ours.v, theirs.v, 1e-5, 0));
  EXPECT_TRUE(at::equal(ours.copy, ours.y.to(at::kBFloat16)));
}

TEST(ScheduleFree, CutAnywhereHasTheSameBitsAlsoRoundedAtRandom) {
  const State whole(at::kBFloat16), cut(at::kBFloat16);
  const at::Tensor gradient = gradient_at(1);
  auto all = whole.step<bf16>(gradient, 3);
  all.rounding = RoundingKey{7, 2};
  schedule_free(all);
  for (const auto& [first, length] :
       {std::pair<std::int64_t, std::int64_t>{0, 7}, {7, 496}, {503, 500}}) {
    const auto piece = [&, first = first, length = length](const at::Tensor& tensor) {
      return tensor.narrow(0, first, length);
    };
    const at::Tensor y = piece(cut.y), z = piece(cut.z), v = piece(cut.v), g = piece(gradient);
    auto step = cut.step<bf16>(gradient, 3);
    step.weight = elements<bf16>(y);
    step.z = elements<bf16>(z);
    step.exp_avg_sq = elements<bf16>(v);
    step.gradient = elements<float>(g);
    step.weight_bf16 = {};
    step.rounding = RoundingKey{7, 2};
    step.index = 1000 + first;
    schedule_free(step);
  }
  EXPECT_TRUE(at::equal(whole.y.view(at::kShort), cut.y.view(at::kShort)));
  EXPECT_TRUE(at::equal(whole.z.view(at::kShort), cut.z.view(at::kShort)));
  EXPECT_TRUE(at::equal(whole.v.view(at::kShort), cut.v.view(at::kShort)));
}

TEST(ScheduleFree, RoundsAsItsComposition) {
  const State ours(at::kBFloat16);
  State theirs(at::kBFloat16);
  const at::Tensor gradient = gradient_at(5);
  auto step = ours.step<bf16>(gradient, 2);
  step.rounding = RoundingKey{7, 2};
  schedule_free(step);
  auto by = numbers(2);
  by.rounding = RoundingKey{7, 2};
  composed::schedule_free_(theirs.y, theirs.z, theirs.v, gradient, by);
  // Where fp32 sums differ in their last digit a random number may decide otherwise.
  for (const auto& [a, b] : {std::pair{ours.y, theirs.y}, {ours.z, theirs.z}, {ours.v, theirs.v}})
    EXPECT_LT((a.view(at::kShort) != b.view(at::kShort)).sum().item<std::int64_t>(), count / 100);
}

}  // namespace
}  // namespace finetune::kernels::test::schedule_free_test
