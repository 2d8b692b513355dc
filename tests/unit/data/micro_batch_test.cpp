// SPDX-License-Identifier: Apache-2.0
#include "data/steps/micro_batch.hpp"

#include <gtest/gtest.h>

#include <numeric>

namespace finetune::data::micro_batch_test {
namespace {

using Indices = std::vector<std::int64_t>;

/// Micro-batches in the order of (rank, micro_step), empty for none.
std::vector<std::vector<Indices>> deal(std::int64_t global_batch, std::int64_t size,
                                       std::int64_t num_ranks) {
  Indices batch(static_cast<std::size_t>(global_batch));
  std::iota(batch.begin(), batch.end(), 0);
  std::vector<std::vector<Indices>> dealt;
  for (std::int64_t rank = 0; rank < num_ranks; ++rank) {
    const MicroBatchGrid grid{size, num_ranks, rank};
    dealt.emplace_back();
    for (std::int64_t k = 0; k < grid.num_micro_steps(global_batch); ++k) {
      const auto samples = grid.rows(batch, k);
      dealt.back().push_back(samples ? Indices(samples->begin(), samples->end()) : Indices{});
    }
  }
  return dealt;
}

using Dealt = std::vector<std::vector<Indices>>;

TEST(MicroBatchGrid, ThreeRanksShareFourMicroBatches) {
  EXPECT_EQ(deal(8, 2, 3), (Dealt{{{0, 1}, {6, 7}}, {{2, 3}, {}}, {{4, 5}, {}}}));
}

TEST(MicroBatchGrid, OneRankTakesThemInOrder) {
  EXPECT_EQ(deal(5, 2, 1), (Dealt{{{0, 1}, {2, 3}, {4}}}));
}

TEST(MicroBatchGrid, RanksBeyondTheBatchHaveNothing) {
  EXPECT_EQ(deal(1, 4, 3), (Dealt{{{0}}, {{}}, {{}}}));
}

TEST(MicroBatchGrid, AMicroBatchIsTheSameOnAnyNumberOfRanks) {
  for (std::int64_t num_ranks = 1; num_ranks <= 5; ++num_ranks) {
    const Dealt dealt = deal(11, 3, num_ranks);
    std::vector<Indices> by_index(4);
    std::size_t count = 0;
    for (std::int64_t rank = 0; rank < num_ranks; ++rank) {
      const auto& own = dealt[static_cast<std::size_t>(rank)];
      for (std::int64_t k = 0; k < std::ssize(own); ++k) {
        const Indices& samples = own[static_cast<std::size_t>(k)];
        if (samples.empty()) continue;
        ++count;
        const MicroBatchGrid grid{3, num_ranks, rank};
        by_index.at(static_cast<std::size_t>(grid.index(k))) = samples;
      }
    }
    EXPECT_EQ(count, 4u);
    EXPECT_EQ(by_index, (std::vector<Indices>{{0, 1, 2}, {3, 4, 5}, {6, 7, 8}, {9, 10}}));
  }
}

/// Samples 1 2 3 4 (3 untrained) | 5 6 | 7.
Dataset three_samples() {
  const std::vector<PackedToken> tokens = {{1, true}, {2, true}, {3, false}, {4, true},
                                           {5, true}, {6, true}, {7, true}};
  return Dataset(std::make_shared<std::vector<PackedToken>>(tokens), {{0, 4}, {4, 2}, {6, 1}});
}

TEST(Collate, ShiftsLabelsAndPadsToTheLongest) {
  const MicroBatch micro_batch = collate(three_samples(), Indices{1, 0}, 9);
  EXPECT_EQ(micro_batch.batch, 2);
  EXPECT_EQ(micro_batch.length, 3);
  EXPECT_EQ(micro_batch.ids, (Indices{5, 9, 9, 1, 2, 3}));
  EXPECT_EQ(micro_batch.labels, (Indices{6, -100, -100, 2, -100, 4}));
}

TEST(Collate, TellsSamplesAndPaddingApart) {
  using Stretches = std::vector<RowPart>;
  EXPECT_EQ(collate(three_samples(), Indices{1, 0}, 9).stretches,
            (Stretches{{1, false}, {2, true}, {3, false}}));
  EXPECT_EQ(collate(three_samples(), Indices{1, 0}, 9, 4).stretches,
            (Stretches{{1, false}, {3, true}, {3, false}, {1, true}}));
}

TEST(Collate, RoundsLengthsUpToMultiples) {
  for (const auto& [step, length] : {std::pair{2, 4}, {3, 3}, {8, 8}}) {
    const MicroBatch micro_batch = collate(three_samples(), Indices{1, 0}, 9, step);
    EXPECT_EQ(micro_batch.length, length);
    EXPECT_EQ(std::ssize(micro_batch.ids), 2 * length);
    EXPECT_EQ(std::count(micro_batch.ids.begin(), micro_batch.ids.end(), 9), 2 * length - 4);
  }
}

TEST(Collate, HasAsManyLabelsAsTrainedTokensWereCounted) {
  const Dataset dataset = three_samples();
  for (const Indices& indices : {Indices{0}, Indices{1}, Indices{0, 1, 2}, Indices{2, 1}}) {
    const MicroBatch micro_batch = collate(dataset, indices, 0);
    const auto& labels = micro_batch.labels;
    std::int64_t expected = 0;
    for (const std::int64_t i : indices)
      expected += dataset.num_targets(i);
    EXPECT_EQ(std::ssize(labels) - std::count(labels.begin(), labels.end(), -100), expected);
  }
}

}  // namespace
}  // namespace finetune::data::micro_batch_test
