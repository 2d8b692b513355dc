// SPDX-License-Identifier: Apache-2.0
#include "plan/layout/bucket.hpp"

#include <gtest/gtest.h>

#include "plan/layout/shard_map.hpp"

namespace finetune::plan::bucket_test {
namespace {

using Names = std::vector<std::string>;

/// An embedding, two blocks of attention (q, k) and feed-forward, a head; rows of a block take
/// turns.
model::ParameterTable small_table() {
  return {.rows = {{.name = "embedding", .shape = {3}, .unit = 0},
                   {.name = "0.q", .shape = {2}, .unit = 1},
                   {.name = "0.k", .shape = {2}, .unit = 1},
                   {.name = "0.up", .shape = {4}, .unit = 1, .part = 1},
                   {.name = "1.q", .shape = {2}, .unit = 2},
                   {.name = "1.k", .shape = {2}, .unit = 2},
                   {.name = "1.up", .shape = {4}, .unit = 2, .part = 1},
                   {.name = "head", .shape = {3}, .unit = 3}},
          .units = {"embedding", "layers.0", "layers.1", "head"}};
}

std::vector<int> units_of(const model::ParameterTable& table) {
  std::vector<int> units;
  for (const model::Parameter& row : table.rows)
    units.push_back(row.unit);
  return units;
}

TEST(Bucket, OfBlocksIsAsTheFamilySays) {
  const model::ParameterTable table = regroup(small_table(), Bucket::block);
  EXPECT_EQ(table.units, small_table().units);
  EXPECT_EQ(units_of(table), units_of(small_table()));
}

TEST(Bucket, OfLayersSplitsBlocksBetweenTheirParts) {
  const model::ParameterTable table = regroup(small_table(), Bucket::layer);
  EXPECT_EQ(table.units, (Names{"embedding", "layers.0.part0", "layers.0.part1", "layers.1.part0",
                                "layers.1.part1", "head"}));
  EXPECT_EQ(units_of(table), (std::vector<int>{0, 1, 1, 2, 3, 3, 4, 5}));
}

TEST(Bucket, OfTheWholeModelIsOneUnit) {
  const model::ParameterTable table = regroup(small_table(), Bucket::whole);
  EXPECT_EQ(table.units, Names{"model"});
  EXPECT_EQ(ShardMap(table, 1).units().at(0).count, small_table().num_parameters());
}

TEST(Bucket, KeepsTheRowsAndTheirOrder) {
  for (const char* bucket : {"BLOCK", "LAYER", "NONE"}) {
    const model::ParameterTable table = regroup(small_table(), bucket_named(bucket));
    ASSERT_EQ(table.rows.size(), small_table().rows.size());
    for (std::size_t i = 0; i < table.rows.size(); ++i)
      EXPECT_EQ(table.rows[i].name, small_table().rows[i].name) << bucket;
  }
}

TEST(Bucket, DoneTwiceIsDoneOnce) {
  for (const char* bucket : {"BLOCK", "LAYER", "NONE"}) {
    const model::ParameterTable once = regroup(small_table(), bucket_named(bucket));
    const model::ParameterTable twice = regroup(once, bucket_named(bucket));
    EXPECT_EQ(twice.units, once.units);
    EXPECT_EQ(units_of(twice), units_of(once));
  }
}

}  // namespace
}  // namespace finetune::plan::bucket_test
