// SPDX-License-Identifier: Apache-2.0
#include "data/dataset.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.hpp"
#include "core/hash.hpp"
#include "core/random.hpp"

namespace finetune::data {

Dataset::Dataset(std::shared_ptr<const std::vector<PackedToken>> tokens, std::vector<Span> samples)
    : tokens_(std::move(tokens)), samples_(std::move(samples)) {
  for (std::int64_t i = 0; i < num_samples(); ++i) {
    num_tokens_ += std::ssize(sample(i));
    num_trained_tokens_ += num_targets(sample(i));
  }
}

std::span<const PackedToken> Dataset::sample(std::int64_t i) const {
  const Span& span = samples_.at(static_cast<std::size_t>(i));
  return std::span(*tokens_).subspan(static_cast<std::size_t>(span.begin),
                                     static_cast<std::size_t>(span.length));
}

Tokens Dataset::tokens(std::int64_t i) const {
  Tokens result;
  for (const PackedToken token : sample(i)) {
    result.ids.push_back(token.id());
    result.labels.push_back(token.trained() ? token.id() : not_trained);
  }
  return result;
}

Dataset Dataset::subset(std::span<const std::int64_t> indices) const {
  std::vector<Span> samples;
  samples.reserve(indices.size());
  for (const std::int64_t i : indices)
    samples.push_back(samples_.at(static_cast<std::size_t>(i)));
  return Dataset(tokens_, std::move(samples));
}

std::string Dataset::fingerprint() const {
  // Hashed sample by sample: a subset shares tokens that are not its own.
  std::string digests;
  for (std::int64_t i = 0; i < num_samples(); ++i)
    digests += core::fingerprint(std::as_bytes(sample(i)));
  return core::fingerprint(digests);
}

std::int64_t num_targets(std::span<const PackedToken> sample) {
  if (sample.empty()) return 0;
  return std::count_if(sample.begin() + 1, sample.end(),
                       [](PackedToken token) { return token.trained(); });
}

std::int64_t num_trained_tokens(const Dataset& dataset, std::span<const std::int64_t> indices) {
  std::int64_t count = 0;
  for (const std::int64_t i : indices)
    count += num_targets(dataset.sample(i));
  return count;
}

Split split(const Dataset& dataset, double fraction, std::uint64_t seed) {
  core::check(fraction > 0 && fraction < 1, "a validation fraction lies between 0 and 1");
  const std::int64_t num_samples = dataset.num_samples();
  const auto num_validation =
      static_cast<std::int64_t>(std::ceil(fraction * static_cast<double>(num_samples)));
  if (num_validation >= num_samples) {
    core::fail(core::ErrorKind::deck,
               {"data.validation_fraction",
                fmt::format("takes all {} samples for validation", num_samples),
                "none is left to train on", "Use a smaller fraction, or data.validation_path."});
  }
  // Epochs are numbered from 0, so the last number is free for this choice.
  const core::RandomKey key(seed, core::RandomUse::shuffle,
                            std::numeric_limits<std::uint64_t>::max());
  std::vector<std::int64_t> order = core::permutation(key, num_samples);
  const auto middle = order.begin() + num_validation;
  std::sort(order.begin(), middle);
  std::sort(middle, order.end());
  return {dataset.subset({middle, order.end()}), dataset.subset({order.begin(), middle})};
}

}  // namespace finetune::data
