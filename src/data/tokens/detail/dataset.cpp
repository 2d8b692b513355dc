// SPDX-License-Identifier: Apache-2.0
#include "data/tokens/detail/dataset.hpp"

#include <algorithm>
#include <utility>

#include "core/error.hpp"

namespace finetune::data {
namespace {

/// What a dataset of vectors keeps.
struct Vectors {
  std::vector<PackedToken> tokens;
  std::vector<std::int64_t> bounds = {0};
  std::vector<std::int32_t> targets;
};

TokenArrays copy_samples(std::span<const PackedToken> tokens, const std::vector<Span>& samples) {
  auto vectors = std::make_shared<Vectors>();
  for (const Span& span : samples) {
    const auto sample =
        tokens.subspan(static_cast<std::size_t>(span.begin), static_cast<std::size_t>(span.length));
    vectors->tokens.insert(vectors->tokens.end(), sample.begin(), sample.end());
    vectors->bounds.push_back(std::ssize(vectors->tokens));
    vectors->targets.push_back(static_cast<std::int32_t>(num_targets(sample)));
  }
  return {vectors->tokens, vectors->bounds, vectors->targets, 0, vectors};
}

}  // namespace

std::span<const PackedToken> TokenArrays::sample(std::int64_t i) const {
  const auto at = static_cast<std::size_t>(i);
  const std::int64_t begin = bounds[at];
  return tokens.subspan(static_cast<std::size_t>(begin),
                        static_cast<std::size_t>(bounds[at + 1] + overlap - begin));
}

std::int64_t num_targets(std::span<const PackedToken> sample) {
  if (sample.empty()) return 0;
  return std::count_if(sample.begin() + 1, sample.end(),
                       [](PackedToken token) { return token.trained(); });
}

std::int64_t Dataset::Part::num_samples() const {
  if (chosen) return std::ssize(*chosen);
  return arrays.num_samples() - (removed ? std::ssize(*removed) : 0);
}

std::int64_t Dataset::Part::index(std::int64_t i) const {
  if (chosen) return (*chosen)[static_cast<std::size_t>(i)];
  if (!removed) return i;
  // The k-th of the removed has removed[k] - k kept samples before it.
  std::int64_t low = 0;
  std::int64_t high = std::ssize(*removed);
  while (low < high) {
    const std::int64_t middle = (low + high) / 2;
    if ((*removed)[static_cast<std::size_t>(middle)] - middle <= i) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return i + low;
}

Dataset::Dataset(TokenArrays arrays) {
  core::check(std::ssize(arrays.bounds) == arrays.num_samples() + 1, "bounds enclose samples");
  add({std::move(arrays), nullptr, nullptr});
}

Dataset::Dataset(const std::shared_ptr<const std::vector<PackedToken>>& tokens,
                 const std::vector<Span>& samples)
    : Dataset(copy_samples(*tokens, samples)) {}

Dataset Dataset::join(std::span<const Dataset> datasets) {
  Dataset joined;
  for (const Dataset& dataset : datasets) {
    for (const Part& part : dataset.parts_)
      joined.add(part);
  }
  return joined;
}

void Dataset::add(Part part) {
  ends_.push_back(num_samples() + part.num_samples());
  parts_.push_back(std::move(part));
}

Dataset::Place Dataset::find(std::int64_t i) const {
  core::check(i >= 0 && i < num_samples(), "a sample is one of the dataset");
  const auto p =
      static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), i) - ends_.begin());
  const Part& part = parts_[p];
  return {part.arrays, part.index(i - (ends_[p] - part.num_samples()))};
}

std::span<const PackedToken> Dataset::sample(std::int64_t i) const {
  const Place place = find(i);
  return place.arrays.sample(place.index);
}

std::int64_t Dataset::length(std::int64_t i) const {
  const auto [arrays, index] = find(i);
  const auto at = static_cast<std::size_t>(index);
  return arrays.bounds[at + 1] + arrays.overlap - arrays.bounds[at];
}

std::int64_t Dataset::num_targets(std::int64_t i) const {
  const Place place = find(i);
  return place.arrays.targets[static_cast<std::size_t>(place.index)];
}

Tokens Dataset::tokens(std::int64_t i) const {
  Tokens result;
  for (const PackedToken token : sample(i)) {
    result.ids.push_back(token.id());
    result.labels.push_back(token.trained() ? token.id() : not_trained);
  }
  return result;
}

std::int64_t Dataset::num_tokens() const {
  std::int64_t sum = 0;
  for (std::int64_t i = 0; i < num_samples(); ++i)
    sum += length(i);
  return sum;
}

std::int64_t Dataset::num_trained_tokens() const {
  std::int64_t sum = 0;
  for (std::int64_t i = 0; i < num_samples(); ++i)
    sum += num_targets(i);
  return sum;
}

Dataset Dataset::subset(std::vector<std::int64_t> indices) const {
  core::check(parts_.size() == 1 && !parts_[0].chosen && !parts_[0].removed,
              "samples are chosen from a data set as it was loaded");
  Dataset result;
  result.add({parts_[0].arrays,
              std::make_shared<const std::vector<std::int64_t>>(std::move(indices)), nullptr});
  return result;
}

Dataset Dataset::without(std::vector<std::int64_t> indices) const {
  core::check(parts_.size() == 1 && !parts_[0].chosen && !parts_[0].removed,
              "samples are removed from a data set as it was loaded");
  Dataset result;
  result.add({parts_[0].arrays, nullptr,
              std::make_shared<const std::vector<std::int64_t>>(std::move(indices))});
  return result;
}

}  // namespace finetune::data
