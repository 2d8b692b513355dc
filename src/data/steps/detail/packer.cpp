// SPDX-License-Identifier: Apache-2.0
#include "data/steps/detail/packer.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <exception>
#include <numeric>
#include <thread>
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

/// Which rooms some bin has: a bit each, and above them a bit for each word that is not empty.
class RoomSet {
 public:
  static constexpr std::size_t none = static_cast<std::size_t>(-1);

  explicit RoomSet(std::size_t size) : words_(size / 64 + 1), tops_(words_.size() / 64 + 1) {}

  void set(std::size_t room) {
    words_[room / 64] |= bit(room);
    tops_[room / 64 / 64] |= bit(room / 64);
  }
  void clear(std::size_t room) {
    std::uint64_t& word = words_[room / 64];
    word &= ~bit(room);
    if (word == 0) tops_[room / 64 / 64] &= ~bit(room / 64);
  }
  /// The smallest room >= `from` that is there.
  std::size_t smallest_from(std::size_t from) const {
    const std::size_t in_word = next(words_[from / 64], from % 64);
    if (in_word < 64) return from / 64 * 64 + in_word;
    const std::size_t word = from / 64 + 1;
    for (std::size_t top = word / 64; top < tops_.size(); ++top) {
      const std::size_t found = next(tops_[top], top == word / 64 ? word % 64 : 0);
      if (found == 64) continue;
      const std::size_t at = top * 64 + found;
      return at * 64 + next(words_[at], 0);
    }
    return none;
  }

 private:
  static std::uint64_t bit(std::size_t i) { return std::uint64_t{1} << i % 64; }
  /// The first bit of `word` from `from` on; 64 if there is none.
  static std::size_t next(std::uint64_t word, std::size_t from) {
    return static_cast<std::size_t>(std::countr_zero(word >> from << from));
  }

  std::vector<std::uint64_t> words_, tops_;
};

/// Open bins by the room left in them; the fullest that takes something is found in a few words.
class Bins {
 public:
  explicit Bins(std::int64_t capacity)
      : capacity_(static_cast<std::size_t>(capacity)),
        open_(capacity_ + 1),
        rooms_(capacity_ + 1) {}

  /// The bin that takes `size` positions: a new one if none has room.
  std::int64_t put(std::int64_t size) {
    const auto wanted = static_cast<std::size_t>(size);
    const std::size_t room = rooms_.smallest_from(wanted);
    if (room == RoomSet::none) {
      place(num_bins_, capacity_ - wanted);
      return num_bins_++;
    }
    const std::int64_t bin = open_[room].back();
    open_[room].pop_back();
    if (open_[room].empty()) rooms_.clear(room);
    place(bin, room - wanted);
    return bin;
  }

  std::int64_t size() const { return num_bins_; }

 private:
  void place(std::int64_t bin, std::size_t room) {
    if (room == 0) return;  // full
    open_[room].push_back(bin);
    rooms_.set(room);
  }

  std::size_t capacity_;
  std::vector<Indices> open_;
  RoomSet rooms_;
  std::int64_t num_bins_ = 0;
};

}  // namespace

class Packing {
 public:
  Packing(const Dataset& dataset, std::int64_t capacity, int num_threads, std::int64_t window)
      : window_(window), samples_(static_cast<std::size_t>(dataset.num_samples())) {
    const std::int64_t count = (dataset.num_samples() + window - 1) / window;
    std::vector<std::vector<std::uint32_t>> begins(static_cast<std::size_t>(count));
    std::atomic<std::int64_t> next{0};
    std::vector<std::exception_ptr> errors(static_cast<std::size_t>(count));
    const auto work = [&] {
      for (std::int64_t w = next++; w < count; w = next++) {
        const auto at = static_cast<std::size_t>(w);
        try {
          begins[at] = pack(dataset, capacity, w);
        } catch (...) {
          errors[at] = std::current_exception();
        }
      }
    };
    {
      std::vector<std::jthread> threads;
      for (std::int64_t t = 1; t < std::min<std::int64_t>(num_threads, count); ++t)
        threads.emplace_back(work);
      work();
    }
    for (const std::exception_ptr& error : errors)
      if (error) std::rethrow_exception(error);
    for (std::vector<std::uint32_t>& own : begins) {
      firsts_.push_back(std::ssize(begins_));
      begins_.insert(begins_.end(), own.begin(), own.end());
      own = {};
    }
  }

  std::int64_t size() const { return std::ssize(begins_); }

  template <typename F>
  void for_each(std::int64_t sequence, const F& f) const {
    const auto window = std::ranges::upper_bound(firsts_, sequence) - firsts_.begin() - 1;
    const std::int64_t base = window * window_;
    const auto at = static_cast<std::size_t>(sequence);
    const bool is_last = window + 1 == std::ssize(firsts_)
                             ? sequence + 1 == size()
                             : sequence + 1 == firsts_[static_cast<std::size_t>(window) + 1];
    const std::int64_t end =
        is_last ? std::min(window_, std::ssize(samples_) - base) : begins_[at + 1];
    for (std::int64_t k = begins_[at]; k < end; ++k)
      f(base + samples_[static_cast<std::size_t>(base + k)]);
  }

 private:
  /// Where the sequences of a window begin in its part of samples_, which is filled.
  std::vector<std::uint32_t> pack(const Dataset& dataset, std::int64_t capacity,
                                  std::int64_t window) {
    const std::int64_t base = window * window_;
    const std::int64_t count = std::min(window_, dataset.num_samples() - base);
    const auto positions = [&](std::int64_t i) { return num_positions(dataset.length(base + i)); };
    const Indices order = by_decreasing(count, positions);
    core::check(positions(order[0]) <= capacity, "every sample fits a sequence");
    Bins bins(capacity);
    Indices bin_of(order.size());  // of order[k]
    for (std::size_t k = 0; k < order.size(); ++k)
      bin_of[k] = bins.put(positions(order[k]));
    Indices next(static_cast<std::size_t>(bins.size()) + 1);
    for (const std::int64_t bin : bin_of)
      ++next[static_cast<std::size_t>(bin) + 1];
    std::partial_sum(next.begin(), next.end(), next.begin());
    std::vector<std::uint32_t> begins(next.begin(), next.end() - 1);
    for (std::size_t k = 0; k < order.size(); ++k)
      samples_[static_cast<std::size_t>(base + next[static_cast<std::size_t>(bin_of[k])]++)] =
          static_cast<std::uint32_t>(order[k]);
    return begins;
  }

  std::int64_t window_;
  std::vector<std::uint32_t> samples_;  ///< of all sequences, in order, counted from their window
  std::vector<std::uint32_t> begins_;   ///< of each sequence in its window's part of samples_
  std::vector<std::int64_t> firsts_;    ///< of each window the first sequence
};

Sequences::Sequences(Dataset dataset)
    : Sequences(dataset, {Part{0, dataset.num_samples(), nullptr}}) {}

Sequences::Sequences(Dataset dataset, std::vector<Part> parts)
    : dataset_(std::move(dataset)), parts_(std::move(parts)) {
  std::int64_t end = 0;
  for (const Part& part : parts_)
    ends_.push_back(end += part.num_sequences);
}

Sequences Sequences::packed(Dataset dataset, std::int64_t capacity, int num_threads,
                            std::int64_t window) {
  auto packing = std::make_shared<const Packing>(dataset, capacity, num_threads, window);
  const std::int64_t size = packing->size();
  return {std::move(dataset), {Part{0, size, std::move(packing)}}};
}

Sequences Sequences::join(std::span<const Sequences> parts) {
  std::vector<Dataset> datasets;
  std::vector<Part> all;
  std::int64_t first_sample = 0;
  for (const Sequences& sequences : parts) {
    core::check(!sequences.order_, "sequences are joined in their own order");
    datasets.push_back(sequences.dataset_);
    for (Part part : sequences.parts_) {
      part.first_sample += first_sample;
      all.push_back(std::move(part));
    }
    first_sample += sequences.dataset_.num_samples();
  }
  return {Dataset::join(datasets), std::move(all)};
}

Sequences Sequences::by_length() const {
  core::check(!order_, "sequences are sorted once");
  Sequences result = *this;
  result.order_ = std::make_shared<const Indices>(
      by_decreasing(size(), [&](std::int64_t k) { return positions(k); }));
  return result;
}

template <typename F>
void Sequences::for_each(std::int64_t i, const F& f) const {
  const std::int64_t sequence = order_ ? order_->at(static_cast<std::size_t>(i)) : i;
  const auto at = std::ranges::upper_bound(ends_, sequence) - ends_.begin();
  const Part& part = parts_.at(static_cast<std::size_t>(at));
  const std::int64_t within = sequence - (ends_[static_cast<std::size_t>(at)] - part.num_sequences);
  if (!part.packing) return f(part.first_sample + within);
  part.packing->for_each(within, [&](std::int64_t sample) { f(part.first_sample + sample); });
}

std::vector<std::int64_t> Sequences::samples(std::int64_t i) const {
  std::vector<std::int64_t> samples;
  for_each(i, [&](std::int64_t sample) { samples.push_back(sample); });
  return samples;
}

template <typename F>
std::int64_t Sequences::sum(std::int64_t i, const F& f) const {
  std::int64_t sum = 0;
  for_each(i, [&](std::int64_t sample) { sum += f(sample); });
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
