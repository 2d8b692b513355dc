// SPDX-License-Identifier: Apache-2.0
#include "data/tokens/detail/dataset.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "data/steps/split.hpp"
#include "unit/data/fake.hpp"

namespace finetune::data::dataset_test {
namespace {

/// Samples of the given lengths whose ids count on from 0; only the first token of each, and every
/// id divisible by 3, is untrained.
Dataset counting(const std::vector<std::int64_t>& lengths) {
  auto tokens = std::make_shared<std::vector<PackedToken>>();
  std::vector<Span> samples;
  for (const std::int64_t length : lengths) {
    samples.push_back({std::ssize(*tokens), length});
    for (std::int64_t l = 0; l < length; ++l) {
      const auto id = static_cast<std::int32_t>(tokens->size());
      tokens->emplace_back(id, l > 0 && id % 3 != 0);
    }
  }
  return Dataset(std::move(tokens), std::move(samples));
}

std::vector<std::int32_t> first_ids(const Dataset& dataset) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < dataset.num_samples(); ++i)
    ids.push_back(dataset.sample(i)[0].id());
  return ids;
}

TEST(PackedToken, KeepsTheSmallestAndTheLargestId) {
  constexpr std::int32_t largest = std::numeric_limits<std::int32_t>::max();
  for (const std::int32_t id : {0, 1, largest}) {
    for (const bool trained : {false, true}) {
      EXPECT_EQ(PackedToken(id, trained).id(), id);
      EXPECT_EQ(PackedToken(id, trained).trained(), trained);
    }
  }
}

TEST(Dataset, GivesSamplesAndCountsTargets) {
  const Dataset dataset = counting({3, 1, 4});  // ids 0 1 2 | 3 | 4 5 6 7
  EXPECT_EQ(dataset.num_samples(), 3);
  EXPECT_EQ(dataset.num_tokens(), 8);
  EXPECT_EQ(dataset.num_trained_tokens(), 4);  // 1 2 | - | 5 7
  EXPECT_EQ(dataset.tokens(2).ids, (std::vector<std::int32_t>{4, 5, 6, 7}));
  EXPECT_EQ(dataset.tokens(2).labels, (std::vector<std::int32_t>{-100, 5, -100, 7}));
  EXPECT_EQ(dataset.num_targets(0), 2);
  EXPECT_EQ(dataset.num_targets(1), 0);
}

TEST(Dataset, TheFirstTokenOfASampleIsNoTarget) {
  const std::vector<PackedToken> sample = {{7, true}, {8, true}, {9, false}};
  EXPECT_EQ(num_targets(sample), 1);
  EXPECT_EQ(num_targets({}), 0);
}

TEST(Dataset, SubsetsAndTheRestTogetherAreTheWhole) {
  const Dataset dataset = counting({1, 2, 3, 4, 5, 6, 7, 8});
  for (const std::vector<std::int64_t>& chosen :
       {std::vector<std::int64_t>{0}, {7}, {0, 1, 2}, {1, 3, 4, 7}, {0, 7}, {2, 3, 4, 5}}) {
    const std::vector<std::int32_t> all = first_ids(dataset);
    std::vector<std::int32_t> expected;
    std::vector<std::int32_t> rest;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const bool is_chosen =
          std::ranges::find(chosen, static_cast<std::int64_t>(i)) != chosen.end();
      (is_chosen ? expected : rest).push_back(all[i]);
    }
    EXPECT_EQ(first_ids(dataset.subset(chosen)), expected);
    EXPECT_EQ(first_ids(dataset.without(chosen)), rest);
  }
}

TEST(Dataset, JoinedOnesKeepTheirSamplesInOrder) {
  const Dataset one = counting({1, 2, 3});
  const Dataset two = counting({4, 5});
  const std::vector<Dataset> parts = {one.without({1}), two, one.subset({0, 2})};
  const Dataset joined = Dataset::join(parts);
  ASSERT_EQ(joined.num_samples(), 6);
  std::vector<std::int64_t> lengths;
  for (std::int64_t i = 0; i < joined.num_samples(); ++i)
    lengths.push_back(joined.length(i));
  EXPECT_EQ(lengths, (std::vector<std::int64_t>{1, 3, 4, 5, 1, 3}));
  EXPECT_EQ(joined.num_tokens(), 17);
  EXPECT_EQ(joined.num_targets(1), num_targets(joined.sample(1)));
}

TEST(Dataset, SamplesMayShareATokenWithTheNext) {
  const std::vector<PackedToken> tokens = {{1, true}, {2, true}, {3, true}, {4, true}};
  const std::vector<std::int64_t> bounds = {0, 2, 3};
  const std::vector<std::int32_t> targets = {2, 1};
  const Dataset dataset(TokenArrays{tokens, bounds, targets, 1, nullptr});
  EXPECT_EQ(dataset.tokens(0).ids, (std::vector<std::int32_t>{1, 2, 3}));
  EXPECT_EQ(dataset.tokens(1).ids, (std::vector<std::int32_t>{3, 4}));
  EXPECT_EQ(dataset.num_tokens(), 5);
}

TEST(Split, TakesEverySampleOnceAndKeepsTheOrder) {
  const Dataset dataset = counting({2, 2, 2, 2, 2, 2, 2});
  const Split parts = split(dataset, 0.3, 1);  // ceil(2.1) = 3
  EXPECT_EQ(parts.validation.num_samples(), 3);
  EXPECT_EQ(parts.training.num_samples(), 4);
  std::vector<std::int32_t> training = first_ids(parts.training);
  const std::vector<std::int32_t> validation = first_ids(parts.validation);
  EXPECT_TRUE(std::is_sorted(training.begin(), training.end()));
  EXPECT_TRUE(std::is_sorted(validation.begin(), validation.end()));
  training.insert(training.end(), validation.begin(), validation.end());
  std::sort(training.begin(), training.end());
  EXPECT_EQ(training, first_ids(dataset));
  EXPECT_EQ(parts.training.num_tokens(), 8);
}

TEST(Split, DependsOnTheSeed) {
  const Dataset dataset = counting(std::vector<std::int64_t>(64, 2));
  EXPECT_EQ(first_ids(split(dataset, 0.5, 1).training), first_ids(split(dataset, 0.5, 1).training));
  EXPECT_NE(first_ids(split(dataset, 0.5, 1).training), first_ids(split(dataset, 0.5, 2).training));
}

TEST(Split, RefusesToTakeEverything) {
  const Dataset dataset = counting({2, 2});
  EXPECT_EQ(split(dataset, 0.5, 1).training.num_samples(), 1);
  EXPECT_TRUE(tests::refusal([&] {
                split(dataset, 0.6, 1);
              }).starts_with("78: data.validation_fraction: takes all 2 samples for validation"));
}

}  // namespace
}  // namespace finetune::data::dataset_test
