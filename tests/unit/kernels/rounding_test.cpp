// SPDX-License-Identifier: Apache-2.0
// Stochastic rounding: of single numbers, and as AdamW stores weights and moments with it.
#include "kernels/detail/rounding_bits.hpp"

#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <set>
#include <vector>

#include "kernels/adamw.hpp"
#include "kernels/adamw8bit.hpp"
#include "kernels/composed_adamw8bit.hpp"
#include "kernels/detail/composed_rounding.hpp"
#include "unit/kernels/tensors.hpp"

namespace finetune::kernels::test::rounding_test {
namespace {

constexpr RoundingKey some_key{0x123456789ABCDEFULL, 700};

std::vector<std::uint32_t> drawn(const RoundingKey& key, std::int64_t first, std::int64_t count) {
  std::vector<std::uint32_t> bits(static_cast<std::size_t>(count));
  RoundingBits(key).draw(first, count, bits.data());
  return bits;
}

/// As rounding.hpp says it.
std::uint32_t bits_of_element(const RoundingKey& key, std::int64_t e) {
  const auto low = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
  const auto high = [](std::int64_t value) { return static_cast<std::uint32_t>(value >> 32); };
  const std::int64_t block = 16 * (e / 64) + e % 16, period = key.step / 64;
  const auto words = core::philox(
      {low(block), high(block), low(period), high(period)},
      {static_cast<std::uint32_t>(key.seed), static_cast<std::uint32_t>(key.seed >> 32) + 6});
  return words[static_cast<std::size_t>(e % 64 / 16)] + 0x9E3779B9u * low(key.step % 64);
}

TEST(Rounding, BitsAreThoseOfPhilox) {
  const std::int64_t first = (1LL << 40) - 70;  // ten tiles, two of them cut
  const auto bits = drawn(some_key, first, 600);
  for (std::int64_t i = 0; i < 600; ++i)
    ASSERT_EQ(bits[static_cast<std::size_t>(i)], bits_of_element(some_key, first + i)) << i;
}

TEST(Rounding, BitsAreThoseOfTheComposition) {
  for (const std::int64_t first : {0LL, 63LL, (1LL << 40) - 70}) {
    const at::Tensor composed = composed::rounding_bits(some_key, first, 300, at::empty({0}));
    const auto bits = drawn(some_key, first, 300);
    for (std::int64_t i = 0; i < 300; ++i)
      ASSERT_EQ(composed[i].item<std::int64_t>(), bits[static_cast<std::size_t>(i)]) << i;
  }
  EXPECT_EQ(composed::rounding_bits(some_key, 5, 0, at::empty({0})).numel(), 0);
}

TEST(Rounding, BitsDependOnSeedStepAndElement) {
  std::set<std::uint32_t> all;
  for (const std::uint64_t seed : {1ULL, 2ULL, 1ULL << 32})
    for (const std::int64_t step : {0, 1, 63, 64, 128})
      for (const std::uint32_t bits : drawn({seed, step}, 0, 64))
        all.insert(bits);
  EXPECT_EQ(all.size(), 3u * 5 * 64);
}

/// All 65,536 cases: as many go up as the number lies above its lower neighbour, so the mean is
/// the number itself.
TEST(Rounding, TheMeanOverAllBitsIsTheNumber) {
  for (const float value : {1.0f, 1.001f, -0.0123f, 3.14159f, 1.998f, 1e-30f, -1e-40f, 0.0f}) {
    double sum = 0;
    for (std::uint32_t random = 0; random < 65536; ++random)
      sum += to_float(round_by(value, random));
    EXPECT_EQ(sum / 65536, static_cast<double>(value)) << value;
  }
}

TEST(Rounding, GivesOneOfTheTwoNeighbours) {
  const float value = 1.001f, below = 1.0f, above = 1.0078125f;
  std::int64_t num_above = 0;
  for (std::uint32_t random = 0; random < 65536; ++random) {
    const float rounded = to_float(round_by(value, random));
    EXPECT_TRUE(rounded == below || rounded == above);
    num_above += rounded == above;
  }
  EXPECT_NEAR(static_cast<double>(num_above) / 65536, (value - below) / (above - below), 1e-4);
}

TEST(Rounding, KeepsWhatIsNotFinite) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const std::uint32_t random : {0u, 1u, 0x8000u, 0xFFFFu}) {
    EXPECT_EQ(to_float(round_by(infinity, random)), infinity);
    EXPECT_EQ(to_float(round_by(-infinity, random)), -infinity);
    EXPECT_TRUE(std::isnan(to_float(round_by(std::nanf(""), random))));
  }
}

TEST(Rounding, HasTheBitsOfItsComposition) {
  at::Tensor wide = normal<float>({1000}, 1) * 1e-2;
  wide[3] = std::numeric_limits<float>::infinity();
  wide[4] = std::nanf("");
  wide[5] = 0;
  wide[6] = -3.3e38f;
  const auto bits = drawn(some_key, 17, 1000);
  const at::Tensor rounded = composed::rounded_by(
      wide, composed::rounding_bits(some_key, 17, 1000, wide).bitwise_right_shift(16));
  const at::Tensor ours = at::empty({1000}, at::kBFloat16);
  for (std::size_t i = 0; i < 1000; ++i)
    elements<bf16>(ours)[i] = round_by(elements<float>(wide)[i], bits_for_weight(bits[i]));
  EXPECT_TRUE(ours[4].isnan().item<bool>() && rounded[4].isnan().item<bool>());
  for (const at::Tensor& each : {ours, rounded})
    each[4].fill_(0);
  EXPECT_TRUE(same_bits(ours, rounded));
}

/// Errors of 64 steps cancel: as often as the number asks for it, to one time or two. Independent
/// random numbers would miss by sqrt(64 / 4) = 4 of them.
TEST(Rounding, IsEvenOverSteps) {
  double square = 0;
  for (std::int64_t element = 0; element < 200; ++element) {
    int num_up = 0;
    for (std::int64_t step = 0; step < 64; ++step)
      num_up += bits_of_element({1, step}, element) >= 0x80000000u;
    EXPECT_NEAR(num_up, 32, 3) << element;
    square += (num_up - 32) * (num_up - 32);
  }
  EXPECT_LT(square / 200, 2.0);
}

/// Weights and moments of AdamW, in bf16 or not.
struct State {
  at::Tensor weight, exp_avg, exp_avg_sq;

  explicit State(std::int64_t count)
      : weight((normal<float>({count}, 1) * 0.02).to(at::kBFloat16)),
        exp_avg((normal<float>({count}, 2) * 0.01).to(at::kBFloat16)),
        exp_avg_sq((normal<float>({count}, 3).square() * 1e-4).to(at::kBFloat16)) {}

  AdamWStep<bf16> step(at::Tensor&& gradient, std::int64_t number, double lr) const = delete;
  AdamWStep<bf16> step(const at::Tensor& gradient, std::int64_t number, double lr) const {
    return {.weight = elements<bf16>(weight),
            .exp_avg = elements<bf16>(exp_avg),
            .exp_avg_sq = elements<bf16>(exp_avg_sq),
            .gradient = elements<float>(gradient),
            .weight_bf16 = {},
            .lr = lr,
            .beta1 = 0.9,
            .beta2 = 0.95,
            .epsilon = 1e-8,
            .weight_decay = 0.1,
            .step = number,
            .rounding = RoundingKey{9, number - 1},
            .index = 1000};
  }
  bool operator==(const State& other) const {
    return same_bits(weight, other.weight) && same_bits(exp_avg, other.exp_avg) &&
           same_bits(exp_avg_sq, other.exp_avg_sq);
  }
};

at::Tensor gradient_at(std::int64_t step, std::int64_t count) {
  return normal<float>({count}, 100 + static_cast<std::uint64_t>(step)) * 0.01;
}

/// Ten thousand weights of 1, whose neighbour below lies 0.0039 away, each to be lowered by 1e-5
/// in each of 100 steps.
TEST(StochasticAdamW, KeepsUpdatesThatAreSmallerThanALastDigit) {
  const std::int64_t count = 10000;
  const at::Tensor gradient = at::ones({count}, at::kFloat);
  for (const bool is_stochastic : {false, true}) {
    State state(count);
    state.weight.fill_(1);
    state.exp_avg.zero_();
    state.exp_avg_sq.zero_();
    for (std::int64_t number = 1; number <= 100; ++number) {
      AdamWStep<bf16> step = state.step(gradient, number, 1e-5);
      step.weight_decay = 0;
      if (!is_stochastic) step.rounding = std::nullopt;
      adamw(step);
    }
    const double moved = 1 - state.weight.to(at::kDouble).mean().item<double>();
    if (is_stochastic) {
      EXPECT_NEAR(moved, 1e-3, 1e-4);
    } else {
      EXPECT_EQ(moved, 0) << "this is what is lost";
    }
  }
}

/// With beta2 = 0.999, a step changes exp_avg_sq by less than half of its last digit.
TEST(StochasticAdamW, LetsTheSecondMomentDecay) {
  const at::Tensor gradient = at::zeros({10000}, at::kFloat);
  for (const bool is_stochastic : {false, true}) {
    State state(10000);
    state.exp_avg_sq.fill_(1);
    for (std::int64_t number = 1; number <= 100; ++number) {
      AdamWStep<bf16> step = state.step(gradient, number, 0);
      step.beta2 = 0.999;
      if (!is_stochastic) step.rounding = std::nullopt;
      adamw(step);
    }
    const double left = state.exp_avg_sq.to(at::kDouble).mean().item<double>();
    EXPECT_NEAR(left, is_stochastic ? std::pow(0.999, 100) : 1.0, is_stochastic ? 2e-3 : 0.0);
  }
}

TEST(StochasticAdamW, LeavesWeightsWithoutAnUpdateAsTheyAre) {
  const State state(1000);
  const at::Tensor before = state.weight.clone(), gradient = gradient_at(1, 1000);
  adamw(state.step(gradient, 1, 0));
  EXPECT_TRUE(same_bits(state.weight, before));
}

TEST(StochasticAdamW, StoresTheRoundedResultsOfTheWideStep) {
  State state(1003);
  const at::Tensor weight = state.weight.to(at::kFloat), m = state.exp_avg.to(at::kFloat),
                   v = state.exp_avg_sq.to(at::kFloat), gradient = gradient_at(1, 1003);
  adamw(AdamWStep<float>{.weight = elements<float>(weight),
                         .exp_avg = elements<float>(m),
                         .exp_avg_sq = elements<float>(v),
                         .gradient = elements<float>(gradient),
                         .weight_bf16 = {},
                         .lr = 1e-4,
                         .beta1 = 0.9,
                         .beta2 = 0.95,
                         .epsilon = 1e-8,
                         .weight_decay = 0.1,
                         .step = 3});
  adamw(state.step(gradient, 3, 1e-4));
  for (std::int64_t i = 0; i < 1003; ++i) {
    const std::uint32_t bits = bits_of_element({9, 2}, 1000 + i);
    const auto at_i = [&](const at::Tensor& wide, std::uint32_t random16) {
      return round_by(wide[i].item<float>(), random16);
    };
    ASSERT_EQ(elements<bf16>(state.weight)[static_cast<std::size_t>(i)], at_i(weight, bits >> 16));
    ASSERT_EQ(elements<bf16>(state.exp_avg)[static_cast<std::size_t>(i)],
              at_i(m, (bits & 0xFF00) | 0x80));
    ASSERT_EQ(elements<bf16>(state.exp_avg_sq)[static_cast<std::size_t>(i)],
              at_i(v, (bits & 0xFF) << 8 | 0x80));
  }
}

TEST(StochasticAdamW, FollowsItsComposition) {
  State ours(5000), theirs(5000);
  for (std::int64_t number = 1; number <= 3; ++number) {
    const at::Tensor gradient = gradient_at(number, 5000);
    theirs.weight.copy_(ours.weight);
    theirs.exp_avg.copy_(ours.exp_avg);
    theirs.exp_avg_sq.copy_(ours.exp_avg_sq);
    adamw(ours.step(gradient, number, 1e-4));
    composed::adamw_(theirs.weight, theirs.exp_avg, theirs.exp_avg_sq, gradient,
                     {1e-4, 0.9, 0.95, 1e-8, 0.1, number, 1.0, RoundingKey{9, number - 1}, 1000});
    // The last bit of a wide number decides once in 65,536 (or 256) roundings.
    EXPECT_LE((ours.weight != theirs.weight).sum().item<int>(), 3);
    EXPECT_LE((ours.exp_avg != theirs.exp_avg).sum().item<int>(), 3);
    EXPECT_LE((ours.exp_avg_sq != theirs.exp_avg_sq).sum().item<int>(), 3);
  }
}

TEST(StochasticAdamW, AnyCutGivesTheSameBits) {
  const State whole(1003), parts(1003);
  const at::Tensor gradient = gradient_at(1, 1003);
  adamw(whole.step(gradient, 1, 1e-4));
  for (const auto& [begin, count] :
       {std::pair<std::size_t, std::size_t>{0, 5}, {5, 1}, {6, 700}, {706, 297}}) {
    AdamWStep<bf16> step = parts.step(gradient, 1, 1e-4);
    step.weight = step.weight.subspan(begin, count);
    step.exp_avg = step.exp_avg.subspan(begin, count);
    step.exp_avg_sq = step.exp_avg_sq.subspan(begin, count);
    step.gradient = step.gradient.subspan(begin, count);
    step.index += static_cast<std::int64_t>(begin);
    adamw(step);
  }
  EXPECT_TRUE(whole == parts);
}

TEST(StochasticAdamW, GivesTheSameBitsForAnyThreadCount) {
  const at::Tensor gradient = gradient_at(1, 50001);
  expect_same_bits_for_any_thread_count([&] {
    const State state(50001);
    adamw(state.step(gradient, 1, 1e-4));
    return state.weight;
  });
}

TEST(StochasticAdamW, CopiesWhatItStored) {
  const State state(300);
  const at::Tensor gradient = gradient_at(1, 300), copy = at::zeros({300}, at::kHalf);
  AdamWStep<bf16> step = state.step(gradient, 1, 1e-4);
  step.weight_f16 = elements<f16>(copy);
  adamw(step);
  EXPECT_TRUE(same_bits(copy, state.weight.to(at::kHalf)));
}

/// bf16 weights beside moments of eight bits.
struct State8bit {
  std::int64_t count;
  at::Tensor weight = at::ones({count}, at::kBFloat16);
  at::Tensor m = at::zeros({count}, at::kByte), v = at::zeros({count}, at::kByte);
  at::Tensor m_scale = at::zeros({(count + 255) / 256}), v_scale = at::zeros_like(m_scale);
  at::Tensor gradient = at::ones({count});
  std::vector<DecayRun> runs = {{3, 300, 0.0, 70}, {303, count - 303, 0.0, 5000}};

  AdamW8bitStep<bf16> step(std::int64_t number) const {
    return {.weight = elements<bf16>(weight),
            .exp_avg = elements<std::uint8_t>(m),
            .exp_avg_sq = elements<std::uint8_t>(v),
            .exp_avg_scale = elements<float>(m_scale),
            .exp_avg_sq_scale = elements<float>(v_scale),
            .gradient = elements<float>(gradient),
            .runs = runs,
            .lr = 1e-5,
            .beta1 = 0.9,
            .beta2 = 0.95,
            .epsilon = 1e-8,
            .step = number,
            .rounding = RoundingKey{9, number - 1}};
  }
};

TEST(StochasticAdamW8bit, KeepsUpdatesThatAreSmallerThanALastDigit) {
  State8bit state{.count = 10000}, nearest{.count = 10000};
  for (std::int64_t number = 1; number <= 100; ++number) {
    adamw8bit(state.step(number));
    AdamW8bitStep<bf16> step = nearest.step(number);
    step.rounding = std::nullopt;
    adamw8bit(step);
  }
  const auto moved = [](const State8bit& of) {
    return 1 - of.weight.narrow(0, 3, of.count - 3).to(at::kDouble).mean().item<double>();
  };
  EXPECT_NEAR(moved(state), 1e-3, 1e-4);
  EXPECT_EQ(moved(nearest), 0);
  EXPECT_TRUE((state.weight.narrow(0, 0, 3) == 1).all().item<bool>()) << "in no run";
}

TEST(StochasticAdamW8bit, RoundsEachRunByItsOwnElements) {
  const State8bit state{.count = 1000};
  AdamW8bitStep<bf16> step = state.step(5);
  step.lr = 1e-3;
  adamw8bit(step);
  // From moments of zero.
  const double m_hat = 0.1 / (1 - std::pow(0.9, 5)), v_hat = 0.05 / (1 - std::pow(0.95, 5));
  const auto updated = static_cast<float>(1 - 1e-3 * m_hat / std::sqrt(v_hat));
  int num_down = 0;
  for (std::int64_t i = 3; i < 1000; ++i) {
    const std::int64_t index = i < 303 ? 70 + i - 3 : 5000 + i - 303;
    const std::uint32_t random = bits_of_element({9, 4}, index) >> 16;
    // The last digits of the update may differ in fp32: numbers that they decide are left out.
    if (round_by(updated, random) != round_by(std::nextafterf(updated, 0), random)) continue;
    const bf16 stored = elements<bf16>(state.weight)[static_cast<std::size_t>(i)];
    ASSERT_EQ(stored, round_by(updated, random)) << i;
    num_down += to_float(stored) < 1;
  }
  EXPECT_GT(num_down, 50);
}

TEST(StochasticAdamW8bit, FollowsItsComposition) {
  const State8bit ours{.count = 5000};
  State8bit theirs{.count = 5000};
  for (std::int64_t number = 1; number <= 3; ++number) {
    adamw8bit(ours.step(number));
    composed::adamw8bit_(
        theirs.weight, {theirs.m, theirs.v, theirs.m_scale, theirs.v_scale}, theirs.gradient,
        {1e-5, 0.9, 0.95, 1e-8, 0.0, number, 1.0, RoundingKey{9, number - 1}}, theirs.runs);
    EXPECT_LE((ours.weight != theirs.weight).sum().item<int>(), 5);
  }
}

TEST(StochasticAdamW8bit, ACutBetweenBlocksGivesTheSameBits) {
  const State8bit whole{.count = 1000}, parts{.count = 1000};
  adamw8bit(whole.step(1));
  const std::array<std::vector<DecayRun>, 2> runs = {
      {{{3, 253, 0.0, 70}}, {{0, 47, 0.0, 323}, {47, 697, 0.0, 5000}}}};
  for (const std::size_t part : {0, 1}) {
    AdamW8bitStep<bf16> step = parts.step(1);
    const std::size_t begin = part * 256, count = part == 0 ? 256 : 744;
    step.weight = step.weight.subspan(begin, count);
    step.exp_avg = step.exp_avg.subspan(begin, count);
    step.exp_avg_sq = step.exp_avg_sq.subspan(begin, count);
    step.exp_avg_scale = step.exp_avg_scale.subspan(part, part == 0 ? 1 : 3);
    step.exp_avg_sq_scale = step.exp_avg_sq_scale.subspan(part, part == 0 ? 1 : 3);
    step.gradient = step.gradient.subspan(begin, count);
    step.runs = runs[part];
    adamw8bit(step);
  }
  EXPECT_TRUE(same_bits(whole.weight, parts.weight));
}

}  // namespace
}  // namespace finetune::kernels::test::rounding_test
