// SPDX-License-Identifier: Apache-2.0
#include "shard/started.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <utility>

#include "shard/detail/own_tokens.hpp"
#include "shard/detail/shared_rows.hpp"
#include "support/allocations.hpp"
#include "support/ranks.hpp"
#include "unit/shard/failing_group.hpp"

namespace finetune::shard::started_test {
namespace {

using tests::FailingGroup;
using Fails = FailingGroup::Fails;

constexpr std::int64_t bytes = 4096;

at::Tensor some_memory() {
  return at::empty({bytes}, at::kByte);
}

Started start(FailingGroup& group) {
  const at::Tensor memory = some_memory();
  return {group, {memory}, [&] { return group.all_reduce(core::DType::u8, memory.data_ptr(), 1); }};
}

class StartedCollective : public testing::Test {
 protected:
  std::int64_t left() const { return allocations_.live_bytes(); }
  FailingGroup group(Fails when) { return {tests::world(), when}; }

 private:
  tests::LeftOnPurpose left_on_purpose_;
  tests::Allocations allocations_;
};

TEST_F(StartedCollective, LetsGoOfItsMemoryWhenItIsDone) {
  FailingGroup group = this->group(Fails::never);
  Started started = start(group);
  EXPECT_EQ(left(), bytes);
  started.wait();
  EXPECT_EQ(left(), 0);
  started.wait();
  EXPECT_TRUE(Started().is_done());
}

TEST_F(StartedCollective, LeavesItsMemoryBehindWhenNobodyWaits) {
  FailingGroup group = this->group(Fails::never);
  { const Started started = start(group); }
  EXPECT_EQ(left(), bytes);
}

TEST_F(StartedCollective, LeavesItsMemoryBehindWhenItFails) {
  FailingGroup group = this->group(Fails::in_wait);
  EXPECT_THROW(start(group).wait(), core::Error);
  EXPECT_EQ(left(), bytes);
}

TEST_F(StartedCollective, LeavesItsMemoryBehindWhenItsStartFails) {
  FailingGroup group = this->group(Fails::in_start);
  EXPECT_THROW(start(group), core::Error);
  EXPECT_EQ(left(), bytes);
}

TEST_F(StartedCollective, HasOneOwner) {
  FailingGroup group = this->group(Fails::never);
  Started one = start(group), another = start(group);
  one = std::move(another);
  EXPECT_EQ(left(), 2 * bytes) << "the first was not waited for";
  Started last(std::move(one));
  last.wait();
  EXPECT_EQ(left(), bytes);
}

TEST_F(StartedCollective, OfOwnTokensKeepsWhatItReadsAndWrites) {
  for (const Fails when : {Fails::in_start, Fails::in_wait}) {
    FailingGroup group = this->group(when);
    const GroupTravel travel(group, 8 * group.size());
    const at::Tensor own = at::ones({8, 16}), all = at::ones({8 * group.size(), 16});
    const auto kept_by = [&](const auto& f) {
      const std::int64_t before = left();
      EXPECT_THROW(f(), core::Error);
      return left() - before;
    };
    // What is the caller's own is not counted again.
    EXPECT_EQ(kept_by([&] { travel.gather(own)->wait(); }), all.nbytes());
    EXPECT_EQ(kept_by([&] { travel.scatter(all)->wait(); }), own.nbytes());
    EXPECT_EQ(kept_by([&] { travel.sum(own); }), own.nbytes());
  }
}

TEST_F(StartedCollective, OfSharedRowsKeepsItsTerms) {
  model::ParameterTable table;
  table.units = {"all"};
  table.rows = {{.name = "norm", .shape = {256}}};
  table.rows.front().held = model::Part{.shape = {256}, .boxes = {{{0}, {256}}}, .num_holders = 2};
  const plan::ShardMap map(table, 1, {.compute = core::DType::f32});
  const auto group = std::make_shared<FailingGroup>(tests::world(), Fails::in_wait);
  if (group->size() == 1) return;  // has nothing to sum
  const SharedRows rows(table, map, group);
  const at::Tensor gradients = at::ones({map.unit(0).padded_count()});
  const std::int64_t before = left();
  EXPECT_THROW(rows.sum(0, gradients), core::Error);
  EXPECT_EQ(left() - before, 256 * 4);
}

}  // namespace
}  // namespace finetune::shard::started_test
