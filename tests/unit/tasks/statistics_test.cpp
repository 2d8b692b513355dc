// SPDX-License-Identifier: Apache-2.0
// Intervals and tests, against numbers worked out by hand or known from tables.
#include "tasks/statistics.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace finetune::tasks::statistics_test {
namespace {

std::vector<double> ones(std::size_t n, std::size_t num) {
  std::vector<double> values(n, 0.0);
  std::fill_n(values.begin(), num, 1.0);
  return values;
}

TEST(Estimate, OfSharesIsWilsonsInterval) {
  const Estimate half = estimate(ones(100, 50));
  EXPECT_DOUBLE_EQ(half.mean, 0.5);
  EXPECT_NEAR(half.low, 0.40383, 1e-5);
  EXPECT_NEAR(half.high, 0.59617, 1e-5);
  EXPECT_NEAR(half.standard_error, std::sqrt(0.25 / 99), 1e-12);
  const Estimate none = estimate(ones(10, 0));
  EXPECT_EQ(none.low, 0);
  EXPECT_NEAR(none.high, 0.27753, 1e-5) << "of ten none is not never";
}

TEST(Estimate, OfOthersIsTheMeanAndItsError) {
  const Estimate one = estimate(std::vector<double>{0.2, 0.4, 0.9});
  EXPECT_DOUBLE_EQ(one.mean, 0.5);
  EXPECT_NEAR(one.standard_error, std::sqrt(0.13 / 3), 1e-12);
  EXPECT_NEAR(one.high - one.mean, 1.959964 * one.standard_error, 1e-6);
}

TEST(Perplexity, IsOfAllTextsTogether) {
  const std::vector<double> log_likelihoods = {-10, -30}, units = {10, 10};
  const Estimate both = perplexity(log_likelihoods, units);
  EXPECT_NEAR(both.mean, std::exp(2.0), 1e-12);
  EXPECT_NEAR(both.low, std::exp(1.0), 1e-9);
  EXPECT_NEAR(both.high, std::exp(3.0), 1e-9);
  const Estimate again = perplexity(log_likelihoods, units);
  EXPECT_EQ(again.standard_error, both.standard_error) << "draws are the same every time";
}

TEST(Difference, OfSharesIsMcNemarsExactTest) {
  // 1 question that only the first has right, 9 that only the second has.
  std::vector<double> a = ones(20, 6), b = ones(20, 6);
  a[6] = 1;
  for (std::size_t i = 7; i < 16; ++i)
    b[i] = 1;
  EXPECT_NEAR(p_of_difference(a, b), 2 * 11.0 / 1024, 1e-12);
  EXPECT_EQ(p_of_difference(a, a), 1);
  EXPECT_EQ(p_of_difference(ones(4, 2), std::vector<double>{0, 0, 1, 1}), 1) << "as often as not";
}

TEST(Difference, OfOthersExchangesSigns) {
  std::vector<double> a, b;
  for (int i = 0; i < 8; ++i) {
    a.push_back(0.1 * i);
    b.push_back(0.1 * i + 0.05 + 0.001 * i);
  }
  // Of 256 ways two are as far out: all one way, and all the other.
  EXPECT_NEAR(p_of_difference(a, b), 2.0 / 256, 0.003);
  EXPECT_EQ(p_of_difference(a, b), p_of_difference(a, b));
  b = a;
  b[3] += 0.5;
  EXPECT_NEAR(p_of_difference(a, b), 1, 1e-12) << "one difference may be chance";
}

}  // namespace
}  // namespace finetune::tasks::statistics_test
