// SPDX-License-Identifier: Apache-2.0
#include "train/infer/sampling.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <unordered_set>

#include "core/random.hpp"

namespace finetune::train {
namespace {

std::vector<float> penalised(std::span<const float> logits, double penalty,
                             std::span<const std::int32_t> text) {
  std::vector<float> values(logits.begin(), logits.end());
  const auto factor = static_cast<float>(penalty);
  for (const std::int32_t token : std::unordered_set<std::int32_t>(text.begin(), text.end())) {
    if (static_cast<std::size_t>(token) >= values.size()) continue;
    float& value = values[static_cast<std::size_t>(token)];
    value = value > 0 ? value / factor : value * factor;
  }
  return values;
}

/// Tokens by falling probability, sorted as far as they are asked for.
class Order {
 public:
  explicit Order(std::span<const float> logits) : logits_(logits), order_(logits.size()) {
    std::iota(order_.begin(), order_.end(), 0);
  }
  std::int32_t operator[](std::size_t i) {
    while (i >= num_sorted_) {
      constexpr std::size_t first = 64;
      const std::size_t end = std::min(order_.size(), std::max(first, 4 * num_sorted_));
      std::partial_sort(order_.begin() + static_cast<std::ptrdiff_t>(num_sorted_),
                        order_.begin() + static_cast<std::ptrdiff_t>(end), order_.end(),
                        [&](std::int32_t a, std::int32_t b) {
                          const float of_a = at(a), of_b = at(b);
                          return of_a > of_b || (of_a == of_b && a < b);
                        });
      num_sorted_ = end;
    }
    return order_[i];
  }
  float at(std::int32_t token) const { return logits_[static_cast<std::size_t>(token)]; }
  std::size_t size() const { return order_.size(); }

 private:
  std::span<const float> logits_;
  std::vector<std::int32_t> order_;
  std::size_t num_sorted_ = 0;
};

std::int32_t sampled(std::span<const float> logits, const Sampling& sampling, double uniform) {
  Order order(logits);
  const double largest = order.at(order[0]);
  const auto probability = [&](std::int32_t token) {
    return std::exp((static_cast<double>(order.at(token)) - largest) / sampling.temperature);
  };
  std::size_t most = order.size();
  if (sampling.top_k > 0) {
    most = std::min(most, static_cast<std::size_t>(sampling.top_k));
    // Those that are as likely as the last one stay.
    while (most < order.size() && order.at(order[most]) == order.at(order[most - 1]))
      ++most;
  }
  double sum = 0;
  if (most == order.size()) {
    for (std::size_t i = 0; i < logits.size(); ++i)
      sum += probability(static_cast<std::int32_t>(i));
  } else {
    for (std::size_t i = 0; i < most; ++i)
      sum += probability(order[i]);
  }
  double kept = 0;
  std::size_t num_kept = 0;
  while (num_kept < most && (num_kept == 0 || kept < sampling.top_p * sum)) {
    const double p = probability(order[num_kept]);
    if (p < sampling.min_p) break;
    kept += p;
    ++num_kept;
  }
  double point = uniform * kept;
  for (std::size_t i = 0; i + 1 < num_kept; ++i) {
    point -= probability(order[i]);
    if (point < 0) return order[i];
  }
  return order[num_kept - 1];
}

}  // namespace

std::int32_t choose(std::span<const float> logits, const Sampling& sampling, std::uint64_t index,
                    std::uint64_t stream, std::span<const std::int32_t> text) {
  std::vector<float> changed;
  if (sampling.repetition_penalty != 1) {
    changed = penalised(logits, sampling.repetition_penalty, text);
    logits = changed;
  }
  if (sampling.temperature <= 0)
    return static_cast<std::int32_t>(std::ranges::max_element(logits) - logits.begin());
  const core::RandomKey key(sampling.seed, core::RandomUse::sampling, stream);
  return sampled(logits, sampling, key.uniform(index));
}

double log_probability(std::span<const float> logits, std::int32_t token) {
  const double largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits)
    sum += std::exp(logit - largest);
  return logits[static_cast<std::size_t>(token)] - largest - std::log(sum);
}

}  // namespace finetune::train
