// SPDX-License-Identifier: Apache-2.0
#include "data/steps/detail/sampler.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "data/steps/detail/block_shuffle.hpp"
#include "unit/data/fake.hpp"

namespace finetune::data::sampler_test {
namespace {

using Indices = std::vector<std::int64_t>;

Indices epoch_of(Sampler& sampler, std::int64_t epoch) {
  Indices all;
  for (std::int64_t k = 0; k < sampler.steps_per_epoch(); ++k) {
    const Indices batch = sampler.batch(epoch * sampler.steps_per_epoch() + k);
    all.insert(all.end(), batch.begin(), batch.end());
  }
  return all;
}

TEST(Sampler, LastBatchOfAnEpochIsSmaller) {
  Sampler sampler(7, 3, 0, SampleOrder::as_read);
  EXPECT_EQ(sampler.steps_per_epoch(), 3);
  EXPECT_EQ(sampler.batch(0), (Indices{0, 1, 2}));
  EXPECT_EQ(sampler.batch(1), (Indices{3, 4, 5}));
  EXPECT_EQ(sampler.batch(2), (Indices{6}));
  EXPECT_EQ(sampler.batch(3), (Indices{0, 1, 2}));
  EXPECT_EQ(sampler.epoch(2), 0);
  EXPECT_EQ(sampler.epoch(3), 1);
}

TEST(Sampler, CountsEpochsInParts) {
  Sampler sampler(10, 4, 0, SampleOrder::as_read);
  EXPECT_EQ(sampler.epoch_size(), 10);
  EXPECT_DOUBLE_EQ(sampler.epochs_after(0), 0);
  EXPECT_DOUBLE_EQ(sampler.epochs_after(1), 0.4);
  EXPECT_DOUBLE_EQ(sampler.epochs_after(3), 1) << "the last batch of an epoch is smaller";
  EXPECT_DOUBLE_EQ(sampler.epochs_after(5), 1.8);
}

TEST(Sampler, TakesABatchLargerThanTheData) {
  Sampler sampler(3, 100, 0, SampleOrder::as_read);
  EXPECT_EQ(sampler.steps_per_epoch(), 1);
  EXPECT_EQ(sampler.batch(5), (Indices{0, 1, 2}));
}

TEST(Sampler, IntervalsEndWithTheFirstStepBehindThem) {
  const Sampler sampler(10, 4, 0, SampleOrder::as_read);  // 0.4, 0.8, 1, 1.4, ...
  const auto ends = [&](double epochs, std::int64_t num_steps) {
    Indices steps;
    for (std::int64_t step = 1; step <= num_steps; ++step)
      if (sampler.ends_interval(epochs, step)) steps.push_back(step);
    return steps;
  };
  EXPECT_EQ(ends(1, 9), (Indices{3, 6, 9}));
  EXPECT_EQ(ends(0.5, 6), (Indices{2, 3, 5, 6}));
  EXPECT_EQ(ends(2, 12), (Indices{6, 12}));
  EXPECT_EQ(ends(1.5, 9), (Indices{5, 9}));
  EXPECT_EQ(ends(0.001, 4), (Indices{1, 2, 3, 4}));
  EXPECT_EQ(ends(0, 9), Indices{});
  // 0.1 is no binary fraction: its multiples are not missed, nor a step early.
  const Sampler tenths(10, 1, 0, SampleOrder::as_read);
  for (std::int64_t step = 1; step <= 10'000; ++step) {
    EXPECT_TRUE(tenths.ends_interval(0.1, step)) << step;
    EXPECT_EQ(tenths.ends_interval(0.3, step), step % 3 == 0) << step;
  }
}

TEST(Sampler, DividesEvenlyWithoutAnEmptyBatch) {
  Sampler sampler(6, 3, 0, SampleOrder::as_read);
  EXPECT_EQ(sampler.steps_per_epoch(), 2);
  EXPECT_EQ(sampler.batch(1), (Indices{3, 4, 5}));
}

TEST(Sampler, ShuffledEpochsVisitEverySampleOnceInDifferentOrders) {
  Sampler sampler(11, 4, 5, SampleOrder::shuffled);
  Indices in_order(11);
  for (std::size_t i = 0; i < in_order.size(); ++i)
    in_order[i] = static_cast<std::int64_t>(i);
  const Indices first = epoch_of(sampler, 0);
  const Indices second = epoch_of(sampler, 1);
  EXPECT_NE(first, in_order);
  EXPECT_NE(first, second);
  for (Indices epoch : {first, second}) {
    std::sort(epoch.begin(), epoch.end());
    EXPECT_EQ(epoch, in_order);
  }
}

TEST(Sampler, AStepDoesNotDependOnTheStepsBefore) {
  Sampler straight(11, 4, 5, SampleOrder::shuffled);
  epoch_of(straight, 0);
  epoch_of(straight, 1);
  for (const std::int64_t step : {7, 0, 100, 7}) {
    Sampler restarted(11, 4, 5, SampleOrder::shuffled);
    EXPECT_EQ(restarted.batch(step), straight.batch(step)) << step;
  }
}

TEST(Sampler, OrderDependsOnTheSeed) {
  Sampler one(64, 64, 1, SampleOrder::shuffled);
  Sampler two(64, 64, 2, SampleOrder::shuffled);
  EXPECT_NE(one.batch(0), two.batch(0));
}

std::vector<std::int64_t> times_drawn(const Sampler& sampler, std::int64_t epoch,
                                      std::int64_t num_sequences) {
  std::vector<std::int64_t> times(static_cast<std::size_t>(num_sequences));
  for (std::int64_t k = 0; k < sampler.steps_per_epoch(); ++k) {
    for (const std::int64_t i : sampler.batch(epoch * sampler.steps_per_epoch() + k))
      ++times.at(static_cast<std::size_t>(i));
  }
  return times;
}

TEST(Sampler, AWholeWeightIsThatManyPassesAnEpoch) {
  for (const SampleOrder order : {SampleOrder::shuffled, SampleOrder::as_read}) {
    const Sampler sampler({{3, 2}, {4, 1}, {2, 3}}, 5, 7, order);
    EXPECT_EQ(sampler.steps_per_epoch(), 4);  // 6 + 4 + 6 draws
    for (const std::int64_t epoch : {0, 1, 9})
      EXPECT_EQ(times_drawn(sampler, epoch, 9), (Indices{2, 2, 2, 1, 1, 1, 1, 3, 3}));
  }
}

TEST(Sampler, AHalfWeightTakesTheOtherHalfInTheNextEpoch) {
  for (const SampleOrder order : {SampleOrder::shuffled, SampleOrder::as_read}) {
    const Sampler sampler({{6, 0.5}, {3, 1}}, 4, 7, order);
    for (const std::int64_t pass : {0, 1, 5}) {
      const auto first = times_drawn(sampler, 2 * pass, 9);
      const auto second = times_drawn(sampler, 2 * pass + 1, 9);
      for (std::size_t i = 0; i < 6; ++i)
        EXPECT_EQ(first[i] + second[i], 1) << i;
      EXPECT_EQ(std::count(first.begin(), first.begin() + 6, 1), 3);
    }
  }
}

TEST(Sampler, WhichHalfComesFirstIsShuffledToo) {
  const Sampler sampler({{64, 0.5}}, 32, 7, SampleOrder::shuffled);
  Indices half = sampler.batch(0);
  std::sort(half.begin(), half.end());
  EXPECT_NE(half.back(), 31);
}

TEST(Sampler, AnyWeightIsExactOverManyEpochs) {
  const Sampler sampler({{10, 0.3}, {10, 1.7}}, 7, 3, SampleOrder::shuffled);
  std::vector<std::int64_t> times(20);
  for (std::int64_t epoch = 0; epoch < 10; ++epoch) {
    const auto drawn = times_drawn(sampler, epoch, 20);
    for (std::size_t i = 0; i < times.size(); ++i)
      times[i] += drawn[i];
  }
  for (std::size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(times[i], 3) << i;
    EXPECT_EQ(times[10 + i], 17) << i;
  }
}

TEST(Sampler, TheSmallestWeightStillDrawsASequence) {
  const Sampler sampler({{10, 0.001}, {1, 1}}, 2, 3, SampleOrder::shuffled);
  std::vector<std::int64_t> times(11);
  for (std::int64_t epoch = 0; epoch < 10; ++epoch) {
    const auto drawn = times_drawn(sampler, epoch, 11);
    for (std::size_t i = 0; i < times.size(); ++i)
      times[i] += drawn[i];
  }
  EXPECT_EQ(times, (std::vector<std::int64_t>{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 10}));
}

TEST(Sampler, RefusesAnEpochThatCannotBeCounted) {
  const auto sampler = [](double weight) {
    return Sampler({{std::int64_t{1} << 40, 1}, {std::int64_t{1} << 40, weight}}, 5, 7,
                   SampleOrder::shuffled);
  };
  EXPECT_EQ(sampler(8190).steps_per_epoch(), ((std::int64_t{8191} << 40) - 1) / 5 + 1);
  for (const double weight : {8191.0, 1e6, 1e300}) {
    EXPECT_TRUE(tests::refusal([&] {
                  sampler(weight);
                }).starts_with("78: data.weights: an epoch has more than "));
  }
}

TEST(Sampler, BlocksOfNeighboursStayNearEachOther) {
  constexpr std::int64_t size = 5003, block = 10, batch = 32;
  Sampler sampler(size, batch, 7, SampleOrder::shuffled, block);
  std::vector<Indices> epochs;
  for (const std::int64_t epoch : {0, 1}) {
    epochs.push_back(epoch_of(sampler, epoch));
    Indices sorted = epochs.back();
    std::ranges::sort(sorted);
    for (std::int64_t i = 0; i < size; ++i)
      ASSERT_EQ(sorted[static_cast<std::size_t>(i)], i);
    // While so many are drawn, they come from as many blocks as are mixed, and no others.
    for (std::int64_t begin = 0; begin + BlockShuffle::mixed * block < 5000;
         begin += BlockShuffle::mixed * block) {
      std::set<std::int64_t> blocks;
      std::int64_t neighbours = 0;
      for (std::int64_t i = begin; i < begin + BlockShuffle::mixed * block; ++i) {
        blocks.insert(epochs.back()[static_cast<std::size_t>(i)] / block);
        neighbours += epochs.back()[static_cast<std::size_t>(i) + 1] ==
                      epochs.back()[static_cast<std::size_t>(i)] + 1;
      }
      EXPECT_EQ(std::ssize(blocks), BlockShuffle::mixed);
      EXPECT_LT(neighbours, 16);
    }
    // What is left of a block comes last.
    Indices rest(epochs.back().end() - 3, epochs.back().end());
    std::ranges::sort(rest);
    EXPECT_EQ(rest, (Indices{5000, 5001, 5002}));
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_EQ(sampler.batch(3), Sampler(size, batch, 7, SampleOrder::shuffled, block).batch(3));
  EXPECT_NE(sampler.batch(0), Sampler(size, batch, 8, SampleOrder::shuffled, block).batch(0));
  // A block may be larger than the data.
  Sampler small(5, 2, 7, SampleOrder::shuffled, 100);
  Indices all = epoch_of(small, 0);
  std::ranges::sort(all);
  EXPECT_EQ(all, (Indices{0, 1, 2, 3, 4}));
}

TEST(Sampler, BlocksOfAPartOfAnEpochAreExactOverAllOfThem) {
  Sampler sampler({{40, 0.5}, {20, 1}}, 4, 3, SampleOrder::shuffled, 5);
  std::vector<std::int64_t> times(60);
  for (const std::int64_t epoch : {0, 1})
    for (const std::int64_t i : epoch_of(sampler, epoch))
      ++times[static_cast<std::size_t>(i)];
  for (std::size_t i = 0; i < times.size(); ++i)
    EXPECT_EQ(times[i], i < 40 ? 1 : 2) << i;
}

TEST(Sampler, OrderIsPinned) {
  // A change of this order breaks the restart of every run made before it.
  Sampler sampler(5, 5, 42, SampleOrder::shuffled);
  EXPECT_EQ(sampler.batch(0), (Indices{3, 4, 1, 0, 2}));
  EXPECT_EQ(sampler.batch(1), (Indices{0, 3, 2, 1, 4}));
}

}  // namespace
}  // namespace finetune::data::sampler_test
