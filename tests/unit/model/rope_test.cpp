// SPDX-License-Identifier: Apache-2.0
#include "model/rope.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>

#include "support/weights.hpp"

namespace finetune::model::rope_test {
namespace {

double plain(const Architecture& a, std::size_t pair) {
  return std::exp(-std::log(a.rope_theta) * 2 * static_cast<double>(pair) /
                  static_cast<double>(a.head_size));
}

Architecture llama31() {
  Architecture a = tests::rotary(128, 500000);
  a.rope_scaling = {.kind = RopeScaling::Kind::llama3,
                    .factor = 8,
                    .low_freq_factor = 1,
                    .high_freq_factor = 4,
                    .original_max_positions = 8192};
  return a;
}

TEST(Rope, FrequenciesFallFromOneByEqualFactors) {
  const Architecture a = tests::rotary(64, 10000);
  const auto frequencies = rope_frequencies(a.positions(), a.turned_channels());
  ASSERT_EQ(frequencies.size(), 32u);
  EXPECT_EQ(frequencies[0], 1.0f);
  for (std::size_t pair = 0; pair < 32; ++pair)
    EXPECT_NEAR(frequencies[pair], plain(a, pair), 1e-6 * plain(a, pair));
}

TEST(Rope, LinearScalingDividesEveryFrequency) {
  Architecture a = tests::rotary(8, 10000);
  const auto before = rope_frequencies(a.positions(), a.turned_channels());
  a.rope_scaling = {.kind = RopeScaling::Kind::linear, .factor = 4};
  const auto after = rope_frequencies(a.positions(), a.turned_channels());
  for (std::size_t pair = 0; pair < 4; ++pair)
    EXPECT_EQ(after[pair], before[pair] / 4);
}

/// Told in turns over the original context: above 4 nothing changes, below 1 all is divided by 8,
/// between them the part that is kept grows with the turns.
TEST(Rope, Llama3ScalingKeepsShortWavesAndStretchesLongOnes) {
  const Architecture a = llama31();
  const auto frequencies = rope_frequencies(a.positions(), a.turned_channels());
  int num_blended = 0;
  for (std::size_t pair = 0; pair < 64; ++pair) {
    const double turns = 8192 * plain(a, pair) / (2 * std::numbers::pi);
    const double kept = std::clamp((turns - 1) / 3, 0.0, 1.0);
    const double expected = plain(a, pair) * (kept + (1 - kept) / 8);
    EXPECT_NEAR(frequencies[pair], expected, 3e-6 * expected) << "pair " << pair;
    num_blended += kept > 0 && kept < 1;
  }
  EXPECT_GE(num_blended, 5);
}

/// Made with transformers 4's ROPE_INIT_FUNCTIONS["llama3"] for the published Llama 3.1 8B; pairs
/// 29 to 34 are blended.
TEST(Rope, Llama3FrequenciesAreThoseOfTransformers) {
  const std::map<std::size_t, double> golden = {
      {1, 0.8146172165870667},     {28, 0.0032114461064338684}, {29, 0.0021665706299245358},
      {30, 0.0013718936825171113}, {31, 0.0008567514596506953}, {32, 0.0005248460220173001},
      {33, 0.0003126936499029398}, {34, 0.0001785077911335975}, {35, 9.556212171446532e-05},
      {63, 3.068925877869333e-07}};
  const auto frequencies = rope_frequencies(llama31().positions(), llama31().turned_channels());
  for (const auto& [pair, expected] : golden)
    EXPECT_NEAR(frequencies[pair], expected, 2e-6 * expected) << "pair " << pair;
}

/// Computed in fp64 from the definition: of pairs of channels that turn 32 times and more over the
/// original context nothing is divided, of those that turn less than once all.
TEST(Rope, YarnScalingKeepsFastTurnsAndDividesSlowOnes) {
  Architecture a = tests::rotary(128, 1e6);
  a.rope_scaling = {.kind = RopeScaling::Kind::yarn, .factor = 4, .original_max_positions = 32768};
  const auto expect = [&](const std::map<std::size_t, double>& golden) {
    const auto frequencies = rope_frequencies(a.positions(), a.turned_channels());
    for (const auto& [pair, expected] : golden)
      EXPECT_NEAR(frequencies[pair], expected, 2e-6 * expected) << "pair " << pair;
  };
  expect({{0, 1},
          {1, 0.8058421877614819},
          {23, 0.006978305848598663},
          {24, 0.005375321490790102},
          {31, 0.0008029597275452302},
          {39, 6.490394320837029e-05},
          {40, 4.445698525097307e-05},
          {63, 3.102344401879299e-07}});
  // Bounds within pairs.
  a = tests::rotary(64, 150000);
  a.rope_scaling = {.kind = RopeScaling::Kind::yarn,
                    .factor = 32,
                    .original_max_positions = 4096,
                    .is_truncated = false};
  expect({{8, 0.050813274815461475},
          {9, 0.03170569618466377},
          {12, 0.006794959489732219},
          {17, 0.0001293187012450632},
          {18, 3.8308812373753384e-05},
          {31, 3.0235114281192144e-07}});
}

TEST(Rope, TablesAreAsLargeAsTheScalingSays) {
  Architecture a = tests::rotary(4, 100);
  const Sequence plain = make_sequence(a, 1, 3);
  a.rope_scaling.amplitude = 1.25;
  const Sequence larger = make_sequence(a, 1, 3);
  EXPECT_TRUE(at::allclose(larger.tables.cos, plain.tables.cos * 1.25));
  EXPECT_TRUE(at::allclose(larger.tables.sin, plain.tables.sin * 1.25));
}

TEST(Rope, TablesHoldTheAngleOfEachPosition) {
  const Architecture a = tests::rotary(4, 100);
  const Sequence sequence = make_sequence(a, 2, 3);
  ASSERT_EQ(sequence.tables.cos.sizes(), (at::IntArrayRef{3, 2}));
  for (std::int64_t position = 0; position < 3; ++position) {
    for (std::int64_t pair = 0; pair < 2; ++pair) {
      const double angle = static_cast<double>(position) * (pair == 0 ? 1 : 0.1);
      EXPECT_NEAR(sequence.tables.cos[position][pair].item<float>(), std::cos(angle), 1e-6);
      EXPECT_NEAR(sequence.tables.sin[position][pair].item<float>(), std::sin(angle), 1e-6);
    }
  }
  EXPECT_TRUE(at::equal(sequence.positions, at::tensor({0, 1, 2, 0, 1, 2}, at::kLong)));
}

TEST(Rope, TablesGoOnWhereTheCacheEnds) {
  const Architecture a = tests::rotary(4, 100);
  KvCache cache;
  cache.length = 2;
  const Sequence whole = make_sequence(a, 1, 5);
  const Sequence rest = make_sequence(a, 3, cache);
  EXPECT_TRUE(at::equal(rest.tables.cos, whole.tables.cos.narrow(0, 2, 3)));
  EXPECT_TRUE(at::equal(rest.tables.sin, whole.tables.sin.narrow(0, 2, 3)));
  EXPECT_TRUE(at::equal(rest.positions, at::tensor({0, 1, 2}, at::kLong)));
}

}  // namespace
}  // namespace finetune::model::rope_test
