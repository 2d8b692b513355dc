// SPDX-License-Identifier: Apache-2.0
#include "kernels/adamw8bit.hpp"

#include <array>
#include <cmath>
#include <limits>

#include "kernels/adamw.hpp"
#include "kernels/composed_adamw8bit.hpp"
#include "unit/kernels/tensors.hpp"

namespace finetune::kernels::test::adamw8bit_test {
namespace {

constexpr std::int64_t num_elements = 3 * moment_block + 37;

std::int64_t blocks(std::int64_t count) {
  return (count + moment_block - 1) / moment_block;
}

struct Codes {
  at::Tensor codes, scales;

  explicit Codes(std::int64_t count)
      : codes(at::zeros({count}, at::kByte)), scales(at::zeros({blocks(count)}, at::kFloat)) {}
  Codes(Moment moment, const at::Tensor& values) : Codes(values.numel()) {
    quantize_moment(moment, elements<float>(values), elements<std::uint8_t>(codes),
                    elements<float>(scales));
  }

  at::Tensor values(Moment moment) const {
    const at::Tensor out = at::empty({codes.numel()}, at::kFloat);
    dequantize_moment(moment, elements<std::uint8_t>(codes), elements<float>(scales),
                      elements<float>(out));
    return out;
  }
};

struct State {
  at::Tensor weight, copy;
  Codes first, second;
  std::vector<DecayRun> runs;

  explicit State(std::int64_t count)
      : weight(normal<float>({count}, 1)),
        copy(at::zeros({count}, at::kBFloat16)),
        first(count),
        second(count),
        runs{{0, count, 0.1}} {}

  AdamW8bitStep<float> step(at::Tensor&& gradient, std::int64_t number) const = delete;
  AdamW8bitStep<float> step(const at::Tensor& gradient, std::int64_t number) const {
    return {.weight = elements<float>(weight),
            .exp_avg = elements<std::uint8_t>(first.codes),
            .exp_avg_sq = elements<std::uint8_t>(second.codes),
            .exp_avg_scale = elements<float>(first.scales),
            .exp_avg_sq_scale = elements<float>(second.scales),
            .gradient = elements<float>(gradient),
            .weight_bf16 = elements<bf16>(copy),
            .runs = runs,
            .lr = 1e-3,
            .beta1 = 0.9,
            .beta2 = 0.95,
            .epsilon = 1e-8,
            .step = number};
  }

  composed::Moments8bit moments() const {
    return {first.codes, second.codes, first.scales, second.scales};
  }
};

at::Tensor gradient_at(std::int64_t step, std::int64_t count) {
  return normal<float>({count}, 100 + static_cast<std::uint64_t>(step)) * 0.01;
}

/// Numbers of both signs over many powers of two; the last block is short.
at::Tensor spread_out(std::uint64_t seed) {
  return normal<float>({num_elements}, seed) * (normal<float>({num_elements}, seed + 1) * 5).exp();
}

TEST(Moments8bit, CodeZeroIsZeroAndTheLargestIsKept) {
  EXPECT_EQ(moment_levels(Moment::first)[0], 0.0f);
  EXPECT_EQ(moment_levels(Moment::second)[0], 0.0f);
  for (const float largest : {-3.0f, 3.0f}) {
    at::Tensor values = normal<float>({moment_block}, 1) * 0.1;
    values[7] = largest;
    const Codes codes(Moment::first, values);
    EXPECT_EQ(codes.values(Moment::first)[7].item<float>(), largest);
  }
  EXPECT_TRUE((Codes(300).values(Moment::first).view(at::kInt) == 0).all().item<bool>());
}

TEST(Moments8bit, TakeTheNearestLevel) {
  for (const Moment moment : {Moment::first, Moment::second}) {
    const at::Tensor values = moment == Moment::first ? spread_out(1) : spread_out(1).abs();
    const Codes codes(moment, values);
    const auto levels = moment_levels(moment);
    for (std::int64_t i = 0; i < num_elements; ++i) {
      const double unit = codes.scales[i / moment_block].item<double>();
      const double value = values[i].item<double>() / unit;
      const double chosen = levels[codes.codes[i].item<std::uint8_t>()];
      double best = std::numeric_limits<double>::infinity();
      for (const float level : levels) {
        if (moment == Moment::first || level > 0 || value == 0)
          best = std::min(best, std::abs(value - level));
      }
      ASSERT_LE(std::abs(value - chosen), best + 1e-7 * std::abs(value)) << value;
    }
  }
}

/// The two levels that meet in a middle, and the floats around it: the lower one keeps the middle.
TEST(Moments8bit, ChangeLevelsRightBehindTheirMiddles) {
  const auto levels = moment_levels(Moment::second);
  for (std::size_t i = 1; i + 1 < levels.size(); ++i) {
    const float middle = (levels[i] + levels[i + 1]) / 2.0f;
    const at::Tensor values =
        at::tensor({std::nextafter(middle, 0.0f), middle, std::nextafter(middle, 1.0f), 1.0f});
    const at::Tensor codes = Codes(Moment::second, values).codes;
    const auto lower = static_cast<std::int64_t>(i);
    EXPECT_TRUE(at::equal(codes.to(at::kLong), at::tensor({lower, lower, lower + 1, 255L})))
        << middle;
  }
}

TEST(Moments8bit, EveryLevelHasItsOwnCode) {
  for (const Moment moment : {Moment::first, Moment::second}) {
    const auto levels = moment_levels(moment);
    const at::Tensor values = at::tensor(at::ArrayRef<float>(levels.data(), levels.size())) * 0.37;
    const at::Tensor expected = at::arange(256, at::kInt).to(at::kByte);
    EXPECT_TRUE(at::equal(Codes(moment, values).codes, expected));
  }
}

TEST(Moments8bit, OfWhatTheyStandForAreTheSameAgain) {
  for (const Moment moment : {Moment::first, Moment::second}) {
    const at::Tensor values = moment == Moment::first ? -spread_out(5) : spread_out(5).abs();
    const Codes once(moment, values), twice(moment, once.values(moment));
    EXPECT_TRUE(at::equal(once.codes, twice.codes));
    EXPECT_TRUE(same_bits(once.scales, twice.scales));
  }
}

TEST(Moments8bit, APositiveSecondOneNeverBecomesZero) {
  at::Tensor values = at::full({moment_block}, 1e-30, at::kFloat);
  values[3] = 1.0f;
  values[4] = 0.0f;
  const Codes codes(Moment::second, values);
  EXPECT_EQ(codes.codes[0].item<int>(), 1);
  EXPECT_EQ(codes.codes[4].item<int>(), 0);
}

TEST(Moments8bit, BlocksOfTinyNumbersBecomeZero) {
  const Codes codes(Moment::first, at::full({moment_block}, 0x1p-127, at::kFloat));
  EXPECT_EQ(codes.scales[0].item<float>(), 0.0f);
  EXPECT_TRUE((codes.codes == 0).all().item<bool>());
}

TEST(AdamW8bit, FirstStepIsThatOfAdamW) {
  // The moments are rounded after the weights are updated.
  const State state(num_elements);
  const at::Tensor weight = state.weight.clone(), copy = at::zeros_like(state.copy);
  const at::Tensor m = at::zeros_like(weight), v = at::zeros_like(weight);
  const at::Tensor gradient = gradient_at(1, num_elements);
  adamw8bit(state.step(gradient, 1));
  adamw(AdamWStep<float>{.weight = elements<float>(weight),
                         .exp_avg = elements<float>(m),
                         .exp_avg_sq = elements<float>(v),
                         .gradient = elements<float>(gradient),
                         .weight_bf16 = elements<bf16>(copy),
                         .lr = 1e-3,
                         .beta1 = 0.9,
                         .beta2 = 0.95,
                         .epsilon = 1e-8,
                         .weight_decay = 0.1,
                         .step = 1});
  EXPECT_TRUE(same_bits(state.weight, weight));
  EXPECT_TRUE(same_bits(state.copy, copy));
  EXPECT_TRUE(at::equal(state.first.codes, Codes(Moment::first, m).codes));
  EXPECT_TRUE(at::equal(state.second.codes, Codes(Moment::second, v).codes));
}

TEST(AdamW8bit, FollowsItsComposition) {
  State ours(num_elements), theirs(num_elements);
  ours.runs = theirs.runs = {{0, 100, 0.1}, {100, 300, 0.0}, {400, 368, 0.1}};
  // From random states: with the same codes, one step can differ by rounding only.
  for (std::int64_t step = 1; step <= 10; ++step) {
    const at::Tensor gradient = gradient_at(step, num_elements);
    theirs.weight.copy_(ours.weight);
    for (auto [to, from] :
         {std::pair{&theirs.first, &ours.first}, {&theirs.second, &ours.second}}) {
      to->codes.copy_(from->codes);
      to->scales.copy_(from->scales);
    }
    AdamW8bitStep<float> args = ours.step(gradient, step);
    args.gradient_scale = 0.5f;
    adamw8bit(args);
    composed::adamw8bit_(theirs.weight, theirs.moments(), gradient,
                         {1e-3, 0.9, 0.95, 1e-8, 0.0, step, 0.5}, theirs.runs);
    expect_close(ours.weight, theirs.weight, 1e-6);
    expect_close(ours.first.scales, theirs.first.scales, 1e-6);
    expect_close(ours.second.scales, theirs.second.scales, 1e-6);
    // A number beside the middle of two levels may fall on either side.
    EXPECT_LE((ours.first.codes != theirs.first.codes).sum().item<int>(), 4);
    EXPECT_LE((ours.second.codes != theirs.second.codes).sum().item<int>(), 4);
  }
}

TEST(AdamW8bit, StaysNearAdamWForManySteps) {
  // A quadratic bowl of many widths with noise in its slope: both get down to the same place.
  const std::int64_t count = 2 * moment_block;
  const State narrow(count);
  const at::Tensor wide = narrow.weight.clone(), m = at::zeros_like(wide), v = at::zeros_like(wide);
  const at::Tensor stiffness = normal<float>({count}, 9).exp();
  const double before = (stiffness * wide.square()).sum().item<double>();
  const auto decay = std::array{DecayRun{0, count, 0.0}};
  for (std::int64_t step = 1; step <= 200; ++step) {
    const at::Tensor noise = gradient_at(step, count);
    const at::Tensor slope8 = stiffness * narrow.weight + noise, slope32 = stiffness * wide + noise;
    AdamW8bitStep<float> args = narrow.step(slope8, step);
    args.lr = 2e-2;
    args.runs = decay;
    adamw8bit(args);
    adamw(AdamWStep<float>{.weight = elements<float>(wide),
                           .exp_avg = elements<float>(m),
                           .exp_avg_sq = elements<float>(v),
                           .gradient = elements<float>(slope32),
                           .weight_bf16 = {},
                           .lr = 2e-2,
                           .beta1 = 0.9,
                           .beta2 = 0.95,
                           .epsilon = 1e-8,
                           .weight_decay = 0.0,
                           .step = step});
  }
  const double after8 = (stiffness * narrow.weight.square()).sum().item<double>();
  const double after32 = (stiffness * wide.square()).sum().item<double>();
  EXPECT_LT(after32, 0.01 * before);
  EXPECT_LT(after8, 0.01 * before);
}

TEST(AdamW8bit, LeavesElementsInNoRunAlone) {
  State state(2 * moment_block);
  state.runs = {{3, 97, 0.1}, {100, 200, 0.0}, {300, 0, 0.1}};
  const at::Tensor before = state.weight.clone();
  at::Tensor gradient = gradient_at(1, 2 * moment_block);
  gradient.narrow(0, 300, 212).fill_(std::numeric_limits<float>::quiet_NaN());
  gradient[0] = std::numeric_limits<float>::quiet_NaN();
  adamw8bit(state.step(gradient, 1));
  for (const auto& [first, count] : {std::pair<std::int64_t, std::int64_t>{0, 3}, {300, 212}}) {
    EXPECT_TRUE(at::equal(state.weight.narrow(0, first, count), before.narrow(0, first, count)));
    EXPECT_TRUE((state.copy.narrow(0, first, count) == 0).all().item<bool>());
    EXPECT_TRUE((state.first.codes.narrow(0, first, count) == 0).all().item<bool>());
    EXPECT_TRUE((state.second.codes.narrow(0, first, count) == 0).all().item<bool>());
  }
  EXPECT_FALSE((state.weight.narrow(0, 3, 297) == before.narrow(0, 3, 297)).any().item<bool>());
}

TEST(AdamW8bit, RoundsWhatIsStoredNarrower) {
  State wide(num_elements), narrow(num_elements);
  narrow.weight = narrow.weight.to(at::kBFloat16);
  wide.weight = narrow.weight.to(at::kFloat);
  const at::Tensor gradient = gradient_at(1, num_elements),
                   half = at::zeros({num_elements}, at::kHalf);
  const AdamW8bitStep<float> of_wide = wide.step(gradient, 1);
  AdamW8bitStep<bf16> of_narrow{.weight = elements<bf16>(narrow.weight),
                                .exp_avg = elements<std::uint8_t>(narrow.first.codes),
                                .exp_avg_sq = elements<std::uint8_t>(narrow.second.codes),
                                .exp_avg_scale = elements<float>(narrow.first.scales),
                                .exp_avg_sq_scale = elements<float>(narrow.second.scales),
                                .gradient = elements<float>(gradient),
                                .weight_f16 = elements<f16>(half),
                                .runs = narrow.runs,
                                .lr = 1e-3,
                                .beta1 = 0.9,
                                .beta2 = 0.95,
                                .epsilon = 1e-8,
                                .step = 1};
  adamw8bit(of_wide);
  adamw8bit(of_narrow);
  EXPECT_TRUE(same_bits(narrow.weight, wide.weight.to(at::kBFloat16)));
  EXPECT_TRUE(same_bits(wide.copy, wide.weight.to(at::kBFloat16)));
  EXPECT_TRUE(same_bits(half, wide.weight.to(at::kHalf)));
}

TEST(AdamW8bit, ACutBetweenBlocksGivesTheSameBits) {
  State whole(num_elements), parts(num_elements);
  whole.runs = {{0, 300, 0.1}, {300, num_elements - 300, 0.0}};
  const at::Tensor gradient = gradient_at(1, num_elements);
  adamw8bit(whole.step(gradient, 1));
  const std::size_t cut = moment_block;
  const std::vector<DecayRun> runs[] = {
      {{0, moment_block, 0.1}},
      {{0, 300 - moment_block, 0.1}, {300 - moment_block, num_elements - 300, 0.0}}};
  for (const std::size_t part : {0, 1}) {
    AdamW8bitStep<float> step = parts.step(gradient, 1);
    const std::size_t begin = part * cut, count = part == 0 ? cut : num_elements - cut;
    step.weight = step.weight.subspan(begin, count);
    step.exp_avg = step.exp_avg.subspan(begin, count);
    step.exp_avg_sq = step.exp_avg_sq.subspan(begin, count);
    step.exp_avg_scale = step.exp_avg_scale.subspan(part, part == 0 ? 1 : 3);
    step.exp_avg_sq_scale = step.exp_avg_sq_scale.subspan(part, part == 0 ? 1 : 3);
    step.gradient = step.gradient.subspan(begin, count);
    step.weight_bf16 = step.weight_bf16.subspan(begin, count);
    step.runs = runs[part];
    adamw8bit(step);
  }
  EXPECT_TRUE(same_bits(whole.weight, parts.weight));
  EXPECT_TRUE(at::equal(whole.first.codes, parts.first.codes));
  EXPECT_TRUE(at::equal(whole.second.codes, parts.second.codes));
  EXPECT_TRUE(same_bits(whole.second.scales, parts.second.scales));
}

TEST(AdamW8bit, GivesTheSameBitsForAnyThreadCount) {
  const at::Tensor gradient = gradient_at(1, 100001), other = gradient_at(2, 100001);
  expect_same_bits_for_any_thread_count([&] {
    State state(100001);
    state.runs = {{0, 70000, 0.1}, {70000, 29999, 0.0}};
    adamw8bit(state.step(gradient, 1));
    adamw8bit(state.step(other, 2));
    return state.weight;
  });
}

TEST(AdamW8bit, RefusesWhatDoesNotFit) {
  State state(num_elements);
  const at::Tensor gradient = gradient_at(1, num_elements), shorter = gradient_at(1, 100);
  EXPECT_ANY_THROW(adamw8bit(state.step(gradient, 0)));
  EXPECT_ANY_THROW(adamw8bit(state.step(shorter, 1)));
  for (const std::vector<DecayRun>& runs :
       {std::vector<DecayRun>{{0, num_elements + 1, 0}}, {{-1, 5, 0}}, {{0, 5, 0}, {4, 5, 0}}}) {
    state.runs = runs;
    EXPECT_ANY_THROW(adamw8bit(state.step(gradient, 1)));
  }
}

}  // namespace
}  // namespace finetune::kernels::test::adamw8bit_test
