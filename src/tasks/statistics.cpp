// SPDX-License-Identifier: Apache-2.0
#include "tasks/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "core/error.hpp"
#include "core/random.hpp"

namespace finetune::tasks {
namespace {

constexpr double quantile_95 = 1.959963984540054;

bool are_binary(std::span<const double> values) {
  return std::ranges::all_of(values, [](double value) { return value == 0 || value == 1; });
}

double mean_of(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// Of numbers that nothing else uses.
core::RandomKey draws(std::uint64_t stream) {
  return {20261126, core::RandomUse::sampling, stream};
}

double mcnemar(std::int64_t only_a, std::int64_t only_b) {
  const std::int64_t n = only_a + only_b, fewer = std::min(only_a, only_b);
  if (n == 0) return 1;
  double tail = 0;
  for (std::int64_t k = 0; k <= fewer; ++k) {
    const auto of = [](std::int64_t x) { return std::lgamma(static_cast<double>(x) + 1); };
    tail += std::exp(of(n) - of(k) - of(n - k) - static_cast<double>(n) * std::log(2.0));
  }
  return std::min(1.0, 2 * tail);
}

}  // namespace

Estimate estimate(std::span<const double> values) {
  const auto n = static_cast<double>(values.size());
  Estimate result;
  if (values.empty()) return result;
  result.mean = mean_of(values);
  double squares = 0;
  for (const double value : values)
    squares += (value - result.mean) * (value - result.mean);
  if (values.size() > 1) result.standard_error = std::sqrt(squares / (n - 1) / n);
  const double z = quantile_95;
  if (are_binary(values)) {
    const double middle = (result.mean + z * z / (2 * n)) / (1 + z * z / n);
    const double reach =
        z / (1 + z * z / n) * std::sqrt(result.mean * (1 - result.mean) / n + z * z / (4 * n * n));
    result.low = std::max(0.0, middle - reach);
    result.high = std::min(1.0, middle + reach);
  } else {
    result.low = result.mean - z * result.standard_error;
    result.high = result.mean + z * result.standard_error;
  }
  return result;
}

Estimate perplexity(std::span<const double> log_likelihoods, std::span<const double> units) {
  core::check(log_likelihoods.size() == units.size(), "each text has units");
  Estimate result;
  if (units.empty()) return result;
  const std::size_t n = units.size();
  const auto of = [](double log_likelihood, double all) {
    return all > 0 ? std::exp(-log_likelihood / all) : 1;
  };
  result.mean = of(std::accumulate(log_likelihoods.begin(), log_likelihoods.end(), 0.0),
                   std::accumulate(units.begin(), units.end(), 0.0));
  constexpr std::size_t num_sets = 1000;
  const core::RandomKey key = draws(1);
  std::vector<double> drawn;
  for (std::size_t set = 0; set < num_sets; ++set) {
    double sum = 0, all = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const auto one = static_cast<std::size_t>(key.below(set * n + i, n));
      sum += log_likelihoods[one];
      all += units[one];
    }
    drawn.push_back(of(sum, all));
  }
  std::ranges::sort(drawn);
  result.low = drawn[num_sets / 40];
  result.high = drawn[num_sets - 1 - num_sets / 40];
  const double middle = mean_of(drawn);
  double squares = 0;
  for (const double value : drawn)
    squares += (value - middle) * (value - middle);
  result.standard_error = std::sqrt(squares / (num_sets - 1));
  return result;
}

double p_of_difference(std::span<const double> a, std::span<const double> b) {
  core::check(a.size() == b.size(), "both are of the same questions");
  std::vector<double> differences;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i] != b[i]) differences.push_back(a[i] - b[i]);
  if (differences.empty()) return 1;
  if (are_binary(a) && are_binary(b)) {
    const auto only_a = std::ranges::count(differences, 1.0);
    return mcnemar(only_a, std::ssize(differences) - only_a);
  }
  const double found = std::abs(std::accumulate(differences.begin(), differences.end(), 0.0));
  constexpr std::uint64_t num_exchanges = 10'000;
  const core::RandomKey key = draws(2);
  std::uint64_t as_large = 1;  // the one that was found
  for (std::uint64_t exchange = 0; exchange < num_exchanges; ++exchange) {
    double sum = 0;
    std::uint64_t bits = 0;
    for (std::size_t i = 0; i < differences.size(); ++i) {
      if (i % 64 == 0) bits = key.bits(exchange * (differences.size() / 64 + 1) + i / 64);
      sum += (bits >> (i % 64) & 1) != 0 ? differences[i] : -differences[i];
    }
    // Sums in another order differ in their last bit.
    as_large += std::abs(sum) >= found * (1 - 1e-12);
  }
  return static_cast<double>(as_large) / static_cast<double>(num_exchanges + 1);
}

}  // namespace finetune::tasks
