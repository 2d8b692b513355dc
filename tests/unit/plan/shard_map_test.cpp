// SPDX-License-Identifier: Apache-2.0
#include "plan/layout/shard_map.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace finetune::plan::shard_map_test {
namespace {

/// Units of 7 elements in three rows, of 1 element, and of 12; their rows take turns.
model::ParameterTable odd_table() {
  return {.rows = {{.name = "a", .shape = {2, 2}, .unit = 0},
                   {.name = "one", .shape = {1}, .unit = 1},
                   {.name = "b", .shape = {1}, .unit = 0},
                   {.name = "twelve", .shape = {3, 4}, .unit = 2},
                   {.name = "c", .shape = {2}, .unit = 0}},
          .units = {"seven", "one", "twelve"}};
}

class ShardMapOf : public testing::TestWithParam<std::int64_t> {
 protected:
  const model::ParameterTable table_ = odd_table();
  const ShardMap map_{table_, GetParam()};
};

TEST_P(ShardMapOf, CoversEveryElementOfEveryParameterOnce) {
  std::vector<std::vector<int>> times;
  for (const model::Parameter& row : table_.rows)
    times.emplace_back(static_cast<std::size_t>(row.count()), 0);
  for (int unit = 0; unit < 3; ++unit) {
    for (std::int64_t i_shard = 0; i_shard < GetParam(); ++i_shard) {
      for (const ShardSlice& slice : map_.slices(unit, i_shard)) {
        EXPECT_EQ(table_.rows[static_cast<std::size_t>(slice.row)].unit, unit);
        for (std::int64_t i = 0; i < slice.count; ++i)
          ++times.at(static_cast<std::size_t>(slice.row))
                .at(static_cast<std::size_t>(slice.tensor_offset + i));
      }
    }
  }
  for (const auto& row : times)
    EXPECT_EQ(row, std::vector<int>(row.size(), 1));
}

TEST_P(ShardMapOf, PutsASliceWhereTheFlatBufferHasIt) {
  for (int unit = 0; unit < 3; ++unit) {
    const UnitLayout& layout = map_.units()[static_cast<std::size_t>(unit)];
    for (std::int64_t i_shard = 0; i_shard < GetParam(); ++i_shard) {
      std::int64_t next = 0;
      for (const ShardSlice& slice : map_.slices(unit, i_shard)) {
        EXPECT_EQ(slice.shard_offset, next) << "slices leave no gap";
        EXPECT_EQ(i_shard * layout.shard_size + slice.shard_offset,
                  map_.offset_of(slice.row) + slice.tensor_offset);
        next += slice.count;
      }
      EXPECT_LE(next, layout.shard_size);
    }
  }
}

TEST_P(ShardMapOf, PadsByLessThanAnElementAShard) {
  for (const UnitLayout& unit : map_.units()) {
    const std::int64_t padding = unit.padded_count() - unit.count;
    EXPECT_GE(padding, 0);
    EXPECT_LT(padding, GetParam());
  }
}

INSTANTIATE_TEST_SUITE_P(Shards, ShardMapOf, testing::Range<std::int64_t>(1, 6));

std::int64_t kept(const ShardMap& map, int unit, std::int64_t i_shard) {
  std::int64_t count = 0;
  for (const ShardSlice& slice : map.slices(unit, i_shard))
    count += slice.count;
  return count;
}

TEST(ShardMap, LaysTheRowsOfAUnitOneAfterTheOther) {
  const ShardMap map(odd_table(), 2);
  const UnitLayout& unit = map.units()[0];
  EXPECT_EQ(unit.name, "seven");
  EXPECT_EQ(unit.rows, (std::vector<int>{0, 2, 4}));
  EXPECT_EQ(unit.offsets, (std::vector<std::int64_t>{0, 4, 5}));
  EXPECT_EQ(unit.count, 7);
  EXPECT_EQ(map.offset_of(4), 5);
  EXPECT_EQ(map.unit_of(4), 0);
  EXPECT_EQ(map.unit_of(3), 2);
}

TEST(ShardMap, KeepsConstantsInFp32BehindWhatIsReadAsOne) {
  model::ParameterTable table{
      .rows = {{.name = "q", .shape = {3}, .trainable = false},
               {.name = "constant", .shape = {5}, .trainable = false, .is_constant = true},
               {.name = "k", .shape = {2}, .trainable = false}},
      .units = {"one"}};
  for (const std::int64_t num_shards : {1, 2, 3}) {
    const ShardMap map(table, num_shards, {.compute = core::DType::bf16});
    EXPECT_EQ(map.offset_of(0), 0);
    EXPECT_EQ(map.offset_of(2), 3 * 2);
    EXPECT_EQ(map.offset_of(1), 64);
    const std::vector<FrozenPlane> planes = map.planes_of(1);
    ASSERT_EQ(planes.size(), 1u);
    EXPECT_EQ(planes[0].dtype, core::DType::f32);
    EXPECT_EQ(map.unit(0).count, 64 + 5 * 4);
    std::int64_t kept = 0;
    for (std::int64_t shard = 0; shard < num_shards; ++shard)
      for (const FrozenSlice& slice : map.frozen_slices(0, shard))
        if (slice.plane.row == 1) kept += slice.count;
    EXPECT_EQ(kept, 5);
  }
}

TEST(ShardMap, LastShardHoldsThePadding) {
  const ShardMap map(odd_table(), 2);
  EXPECT_EQ(map.units()[0].shard_size, 4);
  EXPECT_EQ(kept(map, 0, 0), 4);
  EXPECT_EQ(kept(map, 0, 1), 3);
}

TEST(ShardMap, AShardMayHoldNothingButPadding) {
  const ShardMap map(odd_table(), 5);
  EXPECT_EQ(map.units()[0].shard_size, 2);
  EXPECT_EQ(kept(map, 0, 3), 1);
  EXPECT_EQ(kept(map, 0, 4), 0);
  EXPECT_EQ(kept(map, 1, 0), 1);
  EXPECT_EQ(kept(map, 1, 1), 0);
}

TEST(ShardMap, CountsPaddingAmongItsElements) {
  const ShardMap map(odd_table(), 5);
  EXPECT_EQ(map.shard_elements(), 2 + 1 + 3);
  EXPECT_EQ(map.largest_unit(), 15);
}

}  // namespace
}  // namespace finetune::plan::shard_map_test
