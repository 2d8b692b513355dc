// SPDX-License-Identifier: Apache-2.0
#include "data/steps/detail/packer.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/random.hpp"
#include "data/steps/micro_batch.hpp"

namespace finetune::data::packer_test {
namespace {

using Indices = std::vector<std::int64_t>;

/// Samples that take so many positions, their ids counting on from 0.
Dataset taking(const Indices& positions) {
  auto tokens = std::make_shared<std::vector<PackedToken>>();
  std::vector<Span> samples;
  for (const std::int64_t length : positions) {
    samples.push_back({std::ssize(*tokens), length + 1});
    for (std::int64_t l = 0; l <= length; ++l)
      tokens->emplace_back(static_cast<std::int32_t>(tokens->size()), true);
  }
  return Dataset(std::move(tokens), samples);
}

std::vector<Indices> bins(const Sequences& sequences) {
  std::vector<Indices> result;
  for (std::int64_t i = 0; i < sequences.size(); ++i)
    result.push_back(sequences.samples(i));
  return result;
}

TEST(Packer, PutsEachSampleIntoTheFullestSequenceThatHasRoom) {
  // Longest first: 6 | 5 | 3 to the 6 (room 4, not 5) | 3 to the 5 | 2 to the 5 | 1 to the 6.
  const Sequences packed = Sequences::packed(taking({3, 6, 1, 3, 5, 2}), 10);
  EXPECT_EQ(bins(packed), (std::vector<Indices>{{1, 0, 2}, {4, 3, 5}}));
  EXPECT_EQ(packed.positions(0), 10);
  EXPECT_EQ(packed.positions(1), 10);
  EXPECT_EQ(packed.num_samples(1), 3);
}

TEST(Packer, ASampleMayFillASequenceAlone) {
  EXPECT_EQ(bins(Sequences::packed(taking({4, 4, 4}), 4)), (std::vector<Indices>{{0}, {1}, {2}}));
  EXPECT_EQ(bins(Sequences::packed(taking({1, 1, 1}), 4)), (std::vector<Indices>{{0, 1, 2}}));
}

/// Lengths as instructions have them: many short, few long.
Indices many_lengths(std::int64_t count, std::int64_t longest) {
  const core::RandomKey key(3, core::RandomUse::test);
  Indices lengths;
  for (std::int64_t i = 0; i < count; ++i) {
    const double u = key.uniform(static_cast<std::uint64_t>(i));
    lengths.push_back(1 + static_cast<std::int64_t>(u * u * u * static_cast<double>(longest - 1)));
  }
  return lengths;
}

/// What Bins does, by looking at every bin.
std::vector<Indices> slow_best_fit(const Indices& lengths, std::int64_t capacity) {
  Indices order(lengths.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    order[i] = static_cast<std::int64_t>(i);
  const auto length = [&](std::int64_t i) { return lengths[static_cast<std::size_t>(i)]; };
  std::ranges::stable_sort(order, [&](auto a, auto b) { return length(a) > length(b); });
  std::vector<Indices> result;
  Indices room;
  for (const std::int64_t i : order) {
    std::int64_t best = capacity + 1;
    for (const std::int64_t r : room) {
      if (r >= length(i)) best = std::min(best, r);
    }
    if (best > capacity) {
      result.push_back({i});
      room.push_back(capacity - length(i));
      continue;
    }
    // Of equally full ones any may be taken: only the rooms are compared.
    const auto bin = static_cast<std::size_t>(std::ranges::find(room, best) - room.begin());
    result[bin].push_back(i);
    room[bin] -= length(i);
  }
  return result;
}

TEST(Packer, HasEverySampleOnceAndNoSequenceOverfull) {
  for (const std::int64_t capacity : {7, 64, 100, 1000}) {
    const Indices lengths = many_lengths(2000, capacity);
    const Sequences packed = Sequences::packed(taking(lengths), capacity);
    Indices seen;
    Indices sums;
    for (const Indices& bin : bins(packed)) {
      seen.insert(seen.end(), bin.begin(), bin.end());
      std::int64_t sum = 0;
      for (const std::int64_t i : bin)
        sum += lengths[static_cast<std::size_t>(i)];
      EXPECT_LE(sum, capacity);
      sums.push_back(sum);
    }
    std::ranges::sort(seen);
    ASSERT_EQ(std::ssize(seen), 2000);
    for (std::int64_t i = 0; i < 2000; ++i)
      ASSERT_EQ(seen[static_cast<std::size_t>(i)], i);

    Indices expected;
    for (const Indices& bin : slow_best_fit(lengths, capacity)) {
      std::int64_t sum = 0;
      for (const std::int64_t i : bin)
        sum += lengths[static_cast<std::size_t>(i)];
      expected.push_back(sum);
    }
    std::ranges::sort(sums);
    std::ranges::sort(expected);
    EXPECT_EQ(sums, expected);
    // No packing has fewer sequences than the positions need.
    std::int64_t used = 0;
    for (const std::int64_t length : lengths)
      used += length;
    EXPECT_LE(packed.size(), 1 + (used + capacity - 1) / capacity * 102 / 100);
  }
}

TEST(Packer, DependsOnTheLengthsAlone) {
  const Dataset dataset = taking(many_lengths(500, 100));
  EXPECT_EQ(bins(Sequences::packed(dataset, 128)), bins(Sequences::packed(dataset, 128)));
}

TEST(Packer, NeighboursArePackedWindowByWindow) {
  // {3, 6, 1} and {3, 5, 2}, each by itself; the last window may be smaller.
  const Dataset dataset = taking({3, 6, 1, 3, 5, 2, 4});
  const std::vector<Indices> expected = {{1, 0, 2}, {4, 3, 5}, {6}};
  for (const int threads : {1, 2, 5})
    EXPECT_EQ(bins(Sequences::packed(dataset, 10, threads, 3)), expected);
  const Sequences packed = Sequences::packed(dataset, 10, 1, 3);
  EXPECT_EQ(packed.positions(2), 4);
  EXPECT_EQ(bins(Sequences::join(std::vector{packed, packed})),
            (std::vector<Indices>{{1, 0, 2}, {4, 3, 5}, {6}, {8, 7, 9}, {11, 10, 12}, {13}}));
  EXPECT_EQ(bins(Sequences::packed(dataset, 6, 1, 3).by_length()),
            (std::vector<Indices>{{1}, {4}, {3, 5}, {0, 2}, {6}}));
  // Nothing of it shows where there is one window.
  const Dataset many = taking(many_lengths(500, 100));
  EXPECT_EQ(bins(Sequences::packed(many, 128, 2, 500)), bins(Sequences::packed(many, 128)));
  EXPECT_EQ(std::ssize(bins(Sequences::packed(many, 128, 3, 64))),
            Sequences::packed(many, 128, 3, 64).size());
}

TEST(Packer, DataSetsAreNotMixedInASequence) {
  const std::vector<Sequences> parts = {Sequences::packed(taking({3, 1, 2}), 4),
                                        Sequences(taking({1, 1})),
                                        Sequences::packed(taking({1, 1}), 4)};
  EXPECT_EQ(bins(Sequences::join(parts)), (std::vector<Indices>{{0, 1}, {2}, {3}, {4}, {5, 6}}));
}

TEST(Packer, SequencesAreSortedLongestFirstAndEqualsInOrder) {
  EXPECT_EQ(bins(Sequences(taking({2, 5, 2, 7, 5})).by_length()),
            (std::vector<Indices>{{3}, {1}, {4}, {0}, {2}}));
}

TEST(Packer, ARowHoldsItsSamplesOneAfterTheOther) {
  const Sequences packed = Sequences::packed(taking({2, 3, 1}), 5);  // ids 0-2, 3-6, 7-8
  ASSERT_EQ(bins(packed), (std::vector<Indices>{{1, 0}, {2}}));
  const MicroBatch micro_batch = collate(packed, Indices{0, 1}, 9, 8);
  EXPECT_EQ(micro_batch.ids, (Indices{3, 4, 5, 0, 1, 9, 9, 9, 7, 9, 9, 9, 9, 9, 9, 9}));
  EXPECT_EQ(micro_batch.labels, (Indices{4, 5, 6, 1, 2, -100, -100, -100,  //
                                         8, -100, -100, -100, -100, -100, -100, -100}));
  EXPECT_EQ(micro_batch.stretches,
            (std::vector<RowPart>{{3, false}, {2, false}, {3, true}, {1, false}, {7, true}}));
}

}  // namespace
}  // namespace finetune::data::packer_test
