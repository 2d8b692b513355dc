// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <fstream>
#include <limits>
#include <vector>

#include "core/json.hpp"
#include "support/folders.hpp"
#include "train/infer/sampling.hpp"

namespace finetune::train::choose_test {
namespace {

/// Logits whose probabilities at temperature 1 are 0.2, 0.5 and 0.3.
const std::vector<float> three = {std::log(0.2f), std::log(0.5f), std::log(0.3f)};

constexpr int num_draws = 20000;

/// How often each of three tokens is chosen, as parts of one.
std::array<double, 3> parts(const Sampling& sampling) {
  std::array<int, 3> counts = {};
  for (std::uint64_t i = 0; i < num_draws; ++i)
    ++counts.at(static_cast<std::size_t>(choose(three, sampling, i)));
  const auto part = [&](std::size_t token) { return counts[token] / double{num_draws}; };
  return {part(0), part(1), part(2)};
}

Sampling sampling(double temperature, double top_p = 1, std::uint64_t seed = 7) {
  return {.temperature = temperature, .top_p = top_p, .seed = seed, .stop = {}};
}

TEST(Choose, GreedyIsTheMostLikelyTokenWhateverTheSeed) {
  for (std::uint64_t seed = 0; seed < 20; ++seed)
    EXPECT_EQ(choose(three, sampling(0, 1, seed), seed), 1);
}

TEST(Choose, GreedyTakesTheFirstOfEquals) {
  EXPECT_EQ(choose(std::vector<float>{1, 2, 2}, sampling(0), 0), 1);
}

// Four standard errors of 20,000 draws are 0.014.
constexpr double tolerance = 0.014;

TEST(Choose, DrawsTokensAsOftenAsTheyAreLikely) {
  const auto seen = parts(sampling(1));
  EXPECT_NEAR(seen[0], 0.2, tolerance);
  EXPECT_NEAR(seen[1], 0.5, tolerance);
  EXPECT_NEAR(seen[2], 0.3, tolerance);
}

TEST(Choose, TemperatureIsAPowerOfTheProbabilities) {
  const auto seen = parts(sampling(0.5));
  EXPECT_NEAR(seen[0], 0.04 / 0.38, tolerance);
  EXPECT_NEAR(seen[1], 0.25 / 0.38, tolerance);
  const auto flat = parts(sampling(1e6));
  EXPECT_NEAR(flat[0], 1.0 / 3, tolerance);
}

TEST(Choose, TopPKeepsTheSmallestSetAndItsProportions) {
  const auto seen = parts(sampling(1, 0.7));
  EXPECT_EQ(seen[0], 0);
  EXPECT_NEAR(seen[1], 5.0 / 8, tolerance);
  EXPECT_NEAR(seen[2], 3.0 / 8, tolerance);
}

TEST(Choose, TopPThatOneTokenReachesIsGreedy) {
  EXPECT_EQ(parts(sampling(1, 0.45))[1], 1);
  EXPECT_EQ(parts(sampling(1, 0))[1], 1) << "never an empty set";
  for (std::uint64_t i = 0; i < 100; ++i)
    EXPECT_EQ(choose(std::vector<float>{3, 3}, sampling(1, 0.5), i), 0) << "exactly half is enough";
}

TEST(Choose, DependsOnSeedAndIndexAlone) {
  int num_other_seed = 0, num_other_index = 0;
  for (std::uint64_t i = 0; i < 100; ++i) {
    const auto token = choose(three, sampling(1), i);
    EXPECT_EQ(choose(three, sampling(1), i), token);
    num_other_seed += choose(three, sampling(1, 1, 8), i) != token;
    num_other_index += choose(three, sampling(1), i + 1) != token;
  }
  EXPECT_GT(num_other_seed, 20);
  EXPECT_GT(num_other_index, 20);
}

TEST(Choose, SurvivesExtremeLogits) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (std::uint64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(choose(std::vector<float>{-infinity, 0, -infinity}, sampling(1), i), 1);
    EXPECT_EQ(choose(std::vector<float>{1e30f, -1e30f}, sampling(1e-30), i), 0);
    EXPECT_EQ(choose(std::vector<float>{5}, sampling(1), i), 0);
  }
}

/// Of 40,000 choices each token's share is transformers' probability, to about four deviations;
/// what transformers never chooses is never chosen.
TEST(Choose, GoesByTransformersProbabilities) {
  const core::Json golden = core::Json::parse(
      std::ifstream(tests::source_folder() / "tests/golden/sampling/sampling.json"));
  const auto logits = golden.at("logits").get<std::vector<float>>();
  const auto text = golden.at("text").get<std::vector<std::int32_t>>();
  for (const core::Json& each : golden.at("cases")) {
    const core::Json& settings = each.at("settings");
    Sampling sampling;
    sampling.temperature = settings.at("temperature").get<double>();
    sampling.top_k = settings.value("top_k", std::int64_t{0});
    sampling.top_p = settings.value("top_p", 1.0);
    sampling.min_p = settings.value("min_p", 0.0);
    sampling.repetition_penalty = settings.value("repetition_penalty", 1.0);
    constexpr int num_choices = 40'000;
    std::vector<double> counts(logits.size());
    for (std::uint64_t i = 0; i < num_choices; ++i)
      ++counts[static_cast<std::size_t>(choose(logits, sampling, i, 5, text))];
    for (std::size_t token = 0; token < logits.size(); ++token) {
      const double p = each.at("probabilities")[token].get<double>();
      const double share = counts[token] / num_choices;
      if (p == 0)
        EXPECT_EQ(share, 0) << settings << " " << token;
      else
        EXPECT_NEAR(share, p, 4.5 * std::sqrt(p / num_choices)) << settings << " " << token;
    }
  }
}

TEST(Choose, OfAnotherTextIsAnotherChoice) {
  const std::vector<float> even(64, 0.0f);
  Sampling sampling;
  sampling.temperature = 1;
  int num_other = 0;
  for (std::uint64_t i = 0; i < 100; ++i)
    num_other += choose(even, sampling, i, 1) != choose(even, sampling, i, 2);
  EXPECT_GT(num_other, 80);
}

TEST(LogProbability, IsThatOfASoftmax) {
  EXPECT_NEAR(log_probability(std::vector<float>{0, 0, 0, 0}, 2), std::log(0.25), 1e-12);
  EXPECT_NEAR(log_probability(std::vector<float>{1000, 0}, 1), -1000, 1e-9);
}

}  // namespace
}  // namespace finetune::train::choose_test
