// SPDX-License-Identifier: Apache-2.0
#include "kernels/lion8bit.hpp"

#include "kernels/composed_lion8bit.hpp"
#include "kernels/lion.hpp"
#include "unit/kernels/tensors.hpp"

namespace finetune::kernels::test::lion8bit_test {
namespace {

constexpr std::int64_t num_elements = 3 * moment_block + 37, num_blocks = 4;

struct State {
  at::Tensor weight, codes = at::zeros({num_elements}, at::kByte),
                     scales = at::zeros({num_blocks}, at::kFloat),
                     copy = at::zeros({num_elements}, at::kBFloat16);
  /// What lies between 300 and 310 is in no run.
  std::vector<LionRun> runs = {{0, 300, 0.1, 1, 5}, {310, num_elements - 310, 0, 3, 100'000}};

  explicit State(at::ScalarType dtype = at::kFloat)
      : weight(normal<float>({num_elements}, 1).to(dtype)) {}

  template <class T>
  Lion8bitStep<T> step(at::Tensor&& gradient) const = delete;
  template <class T>
  Lion8bitStep<T> step(const at::Tensor& gradient) const {
    return {.weight = elements<T>(weight),
            .exp_avg = elements<std::uint8_t>(codes),
            .exp_avg_scale = elements<float>(scales),
            .gradient = elements<float>(gradient),
            .weight_bf16 = elements<bf16>(copy),
            .runs = runs,
            .lr = 1e-2,
            .beta1 = 0.9,
            .beta2 = 0.99,
            .gradient_scale = 0.5f};
  }

  composed::LionNumbers numbers() const {
    return {.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0, .gradient_scale = 0.5};
  }
};

at::Tensor gradient_at(std::uint64_t step) {
  return normal<float>({num_elements}, 100 + step) * 0.01;
}

TEST(Lion8bit, FollowsItsComposition) {
  const State ours;
  State theirs;
  for (std::uint64_t step = 0; step < 8; ++step) {
    const at::Tensor gradient = gradient_at(step);
    lion8bit(ours.step<float>(gradient));
    composed::lion8bit_(theirs.weight, theirs.codes, theirs.scales, gradient, theirs.numbers(),
                        theirs.runs);
  }
  EXPECT_TRUE(at::allclose(ours.weight, theirs.weight, 0, 1e-6));
  EXPECT_TRUE(at::allclose(ours.scales, theirs.scales, 1e-5, 0));
  EXPECT_LT((ours.codes != theirs.codes).sum().item<std::int64_t>(), num_elements / 100);
  EXPECT_TRUE(
      at::equal(ours.copy.narrow(0, 0, 300), ours.weight.narrow(0, 0, 300).to(at::kBFloat16)));
}

TEST(Lion8bit, HasLionsWeightsInItsFirstStep) {
  const State ours;
  const at::Tensor weight = ours.weight.clone(), moment = at::zeros({300}, at::kFloat),
                   gradient = gradient_at(1);
  const at::Tensor first = weight.narrow(0, 0, 300), of_first = gradient.narrow(0, 0, 300);
  lion8bit(ours.step<float>(gradient));
  lion(LionStep<float>{.weight = elements<float>(first),
                       .exp_avg = elements<float>(moment),
                       .gradient = elements<float>(of_first),
                       .lr = 1e-2,
                       .beta1 = 0.9,
                       .beta2 = 0.99,
                       .weight_decay = 0.1,
                       .gradient_scale = 0.5f});
  EXPECT_TRUE(at::equal(ours.weight.narrow(0, 0, 300), first));
}

TEST(Lion8bit, LeavesWhatIsInNoRun) {
  State ours;
  const at::Tensor before = ours.weight.clone();
  ours.codes.fill_(7);
  ours.scales.fill_(1);
  const at::Tensor gradient = at::full({num_elements}, NAN, at::kFloat);
  gradient.narrow(0, 0, 300).fill_(1);
  gradient.narrow(0, 310, num_elements - 310).fill_(1);
  lion8bit(ours.step<float>(gradient));
  EXPECT_TRUE(at::equal(ours.weight.narrow(0, 300, 10), before.narrow(0, 300, 10)));
  EXPECT_EQ(ours.codes.narrow(0, 300, 10).count_nonzero().item<std::int64_t>(), 0);
  EXPECT_TRUE(ours.weight.isfinite().all().item<bool>());
}

/// Blocks may be cut into calls, and elements of a run know their number in the model.
TEST(Lion8bit, CutBetweenBlocksHasTheSameBits) {
  for (const bool is_stochastic : {false, true}) {
    const State whole(at::kBFloat16), cut(at::kBFloat16);
    const at::Tensor gradient = gradient_at(3);
    const auto rounding = is_stochastic ? std::optional(RoundingKey{3, 4}) : std::nullopt;
    auto step = whole.step<bf16>(gradient);
    step.rounding = rounding;
    lion8bit(step);
    const auto piece = [&](std::int64_t first, std::int64_t count, std::vector<LionRun> runs) {
      const at::Tensor weight = cut.weight.narrow(0, first, count),
                       codes = cut.codes.narrow(0, first, count),
                       scales = cut.scales.narrow(0, first / moment_block,
                                                  (count + moment_block - 1) / moment_block),
                       of_piece = gradient.narrow(0, first, count);
      lion8bit(Lion8bitStep<bf16>{.weight = elements<bf16>(weight),
                                  .exp_avg = elements<std::uint8_t>(codes),
                                  .exp_avg_scale = elements<float>(scales),
                                  .gradient = elements<float>(of_piece),
                                  .runs = runs,
                                  .lr = 1e-2,
                                  .beta1 = 0.9,
                                  .beta2 = 0.99,
                                  .gradient_scale = 0.5f,
                                  .rounding = rounding});
    };
    constexpr std::int64_t at = 2 * moment_block;
    piece(0, at, {{0, 300, 0.1, 1, 5}, {310, at - 310, 0, 3, 100'000}});
    piece(at, num_elements - at, {{0, num_elements - at, 0, 3, 100'000 + at - 310}});
    EXPECT_TRUE(at::equal(whole.weight.view(at::kShort), cut.weight.view(at::kShort)));
    EXPECT_TRUE(at::equal(whole.codes, cut.codes));
    EXPECT_TRUE(at::equal(whole.scales, cut.scales));
  }
}

}  // namespace
}  // namespace finetune::kernels::test::lion8bit_test
