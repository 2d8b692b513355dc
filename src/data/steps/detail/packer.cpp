// SPDX-License-Identifier: Apache-2.0
#include "data/steps/detail/packer.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/error.hpp"

namespace finetune::data {
namespace {

using Indices = std::vector<std::int64_t>;

/// 0 .. count - 1 by decreasing positions, equals in order: a counting sort, which is stable.
template <typename Positions>
Indices by_decreasing(std::int64_t count, const Positions& positions) {
  std::int64_t longest = 0;
  for (std::int64_t i = 0; i < count; ++i)
    longest = std::max(longest, positions(i));
  Indices next(static_cast<std::size_t>(longest) + 2);
  const auto slot = [&](std::int64_t i) {
    return static_cast<std::size_t>(longest - positions(i));
  };
  for (std::int64_t i = 0; i < count; ++i)
    ++next[slot(i) + 1];
  std::partial_sum(next.begin(), next.end(), next.begin());
  Indices order(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i)
    order[static_cast<std::size_t>(next[slot(i)]++)] = i;
  return order;
}

/// Open bins by the room left in them; the fullest that takes something is found in log(capacity).
class Bins {
 public:
  explicit Bins(std::int64_t capacity)
      : capacity_(static_cast<std::size_t>(capacity)), open_(capacity_ + 1) {
    while (width_ < capacity_ + 1)
      width_ *= 2;
    any_.assign(2 * width_, false);
  }

  /// The bin that takes `size` positions: a new one if none has room.
  std::int64_t put(std::int64_t size) {
    const auto wanted = static_cast<std::size_t>(size);
    const std::size_t room = smallest_from(wanted);
    std::int64_t bin = num_bins_;
    if (room == none) {
      ++num_bins_;
      place(bin, capacity_ - wanted);
      return bin;
    }
    bin = open_[room].back();
    open_[room].pop_back();
    if (open_[room].empty()) mark(room, false);
    place(bin, room - wanted);
    return bin;
  }

  std::int64_t size() const { return num_bins_; }

 private:
  static constexpr std::size_t none = static_cast<std::size_t>(-1);

  void place(std::int64_t bin, std::size_t room) {
    if (room == 0) return;  // full
    open_[room].push_back(bin);
    mark(room, true);
  }

  /// any_ is a binary tree over the rooms: whether one below a node has a bin.
  void mark(std::size_t room, bool value) {
    std::size_t node = room + width_;
    any_[node] = value;
    for (node /= 2; node >= 1; node /= 2)
      any_[node] = any_[2 * node] || any_[2 * node + 1];
  }

  /// The smallest room >= `from` that a bin has.
  std::size_t smallest_from(std::size_t from) const {
    std::size_t node = from + width_;
    while (!any_[node]) {
      while (node % 2 == 1)
        node /= 2;
      if (node == 0) return none;
      ++node;  // the right neighbour of the last left child on the way up
    }
    while (node < width_)
      node = any_[2 * node] ? 2 * node : 2 * node + 1;
    return node - width_;
  }

  std::size_t capacity_;
  std::size_t width_ = 1;
  std::vector<Indices> open_;
  std::vector<bool> any_;
  std::int64_t num_bins_ = 0;
};

}  // namespace

Sequences Sequences::packed(Dataset dataset, std::int64_t capacity) {
  const std::int64_t count = dataset.num_samples();
  const auto positions = [&](std::int64_t i) { return num_positions(dataset.length(i)); };
  const Indices order = by_decreasing(count, positions);
  core::check(count == 0 || positions(order[0]) <= capacity, "every sample fits a sequence");
  Bins bins(capacity);
  Indices bin_of(order.size());  // of order[k]
  for (std::size_t k = 0; k < order.size(); ++k)
    bin_of[k] = bins.put(positions(order[k]));

  Sequences result(std::move(dataset));
  result.begins_.assign(static_cast<std::size_t>(bins.size()) + 1, 0);
  for (const std::int64_t bin : bin_of)
    ++result.begins_[static_cast<std::size_t>(bin) + 1];
  std::partial_sum(result.begins_.begin(), result.begins_.end(), result.begins_.begin());
  result.samples_.resize(order.size());
  Indices next = result.begins_;
  for (std::size_t k = 0; k < order.size(); ++k) {
    const auto bin = static_cast<std::size_t>(bin_of[k]);
    result.samples_[static_cast<std::size_t>(next[bin]++)] = order[k];
  }
  return result;
}

Sequences Sequences::join(std::span<const Sequences> parts) {
  std::vector<Dataset> datasets;
  bool any_packed = false;
  for (const Sequences& part : parts) {
    datasets.push_back(part.dataset_);
    any_packed = any_packed || !part.begins_.empty();
  }
  Sequences result(Dataset::join(datasets));
  if (!any_packed) return result;
  result.begins_ = {0};
  std::int64_t first = 0;
  for (const Sequences& part : parts) {
    for (std::int64_t i = 0; i < part.size(); ++i) {
      for (const std::int64_t sample : part.samples(i))
        result.samples_.push_back(first + sample);
      result.begins_.push_back(std::ssize(result.samples_));
    }
    first += part.dataset_.num_samples();
  }
  return result;
}

Sequences Sequences::by_length() const {
  Sequences result(dataset_);
  result.begins_ = {0};
  for (const std::int64_t i : by_decreasing(size(), [&](std::int64_t k) { return positions(k); })) {
    for (const std::int64_t sample : samples(i))
      result.samples_.push_back(sample);
    result.begins_.push_back(std::ssize(result.samples_));
  }
  return result;
}

std::vector<std::int64_t> Sequences::samples(std::int64_t i) const {
  if (begins_.empty()) return {i};
  const auto at = static_cast<std::size_t>(i);
  return {samples_.begin() + begins_.at(at), samples_.begin() + begins_.at(at + 1)};
}

template <typename F>
std::int64_t Sequences::sum(std::int64_t i, const F& f) const {
  if (begins_.empty()) return f(i);
  std::int64_t sum = 0;
  const auto at = static_cast<std::size_t>(i);
  for (std::int64_t k = begins_.at(at); k < begins_.at(at + 1); ++k)
    sum += f(samples_[static_cast<std::size_t>(k)]);
  return sum;
}

std::int64_t Sequences::num_samples(std::int64_t i) const {
  return sum(i, [](std::int64_t) { return 1; });
}

std::int64_t Sequences::positions(std::int64_t i) const {
  return sum(i, [&](std::int64_t sample) { return num_positions(dataset_.length(sample)); });
}

std::int64_t Sequences::num_tokens(std::int64_t i) const {
  return sum(i, [&](std::int64_t sample) { return dataset_.length(sample); });
}

std::int64_t Sequences::num_targets(std::int64_t i) const {
  return sum(i, [&](std::int64_t sample) { return dataset_.num_targets(sample); });
}

}  // namespace finetune::data
