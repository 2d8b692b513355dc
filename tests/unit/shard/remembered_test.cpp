// SPDX-License-Identifier: Apache-2.0
// A group is told of the memory that its collectives use, for as long as there is any.
#include <gtest/gtest.h>

#include <map>

#include "comm/mpi/mpi_group.hpp"
#include "shard/model_shards.hpp"
#include "support/ranks.hpp"
#include "support/shards.hpp"

namespace finetune::shard::remembered_test {
namespace {

class ToldGroup : public comm::MpiGroup {
 public:
  using MpiGroup::MpiGroup;

  void remember(void* memory, std::int64_t bytes) override {
    EXPECT_TRUE(known_.emplace(static_cast<std::byte*>(memory), bytes).second);
    ++num_told;
  }
  void forget(void* memory) override {
    EXPECT_EQ(known_.erase(static_cast<std::byte*>(memory)), 1u);
  }
  comm::Ticket all_gather(core::DType dtype, const void* shard, void* full,
                          std::int64_t count) override {
    const std::int64_t bytes = count * core::size_bytes(dtype);
    num_unknown += knows(shard, bytes) && knows(full, size() * bytes) ? 0 : 1;
    return MpiGroup::all_gather(dtype, shard, full, count);
  }
  bool knows(const void* memory, std::int64_t bytes) const {
    const auto* const first = static_cast<const std::byte*>(memory);
    return std::ranges::any_of(known_, [&](const auto& block) {
      return block.first <= first && first + bytes <= block.first + block.second;
    });
  }
  bool knows_anything() const { return !known_.empty(); }

  int num_told = 0;
  int num_unknown = 0;

 private:
  std::map<const std::byte*, std::int64_t> known_;
};

/// Two passes over all units by a rank's shards.
void run_two_passes(ModelShards& shards, const ToldGroup& group, bool is_told) {
  for (int pass = 0; pass < 2; ++pass) {
    for (int unit = 0; unit < shards.num_units(); ++unit) {
      shards.open(unit);
      shards.open_gradient(unit);
      for (const int row : shards.map().units()[static_cast<std::size_t>(unit)].rows) {
        if (!shards.is_trained(unit)) continue;
        at::Tensor gradient = shards.gradient({row, 1}).tensor;
        EXPECT_EQ(group.knows(gradient.data_ptr(), static_cast<std::int64_t>(gradient.nbytes())),
                  is_told);
        gradient.fill_(1);
      }
      shards.reduce_gradient(unit);
      shards.close(unit);
      shards.release(unit);
    }
    shards.finish_gradients();
  }
}

TEST(RememberedBuffers, AreThoseThatAreGatheredAndReduced) {
  model::ParameterTable table = tests::odd_table();
  table.rows[4].trainable = false;
  const Options usual = tests::computing_in(core::DType::bf16);
  const plan::ShardMap map(table, tests::world().size(), {.compute = usual.numbers.compute});
  for (const bool is_told : {true, false}) {
    const auto worker = std::make_shared<comm::Worker>(comm::Worker::Where::behind);
    const auto group = std::make_shared<ToldGroup>(tests::world(), worker);
    const Groups groups{
        .fsdp = group,
        .dp_replicate = std::make_shared<comm::MpiGroup>(comm::Communicator(), worker),
        .alone = plan::Alone::communicates};
    Options options = usual;
    options.registers_buffers = is_told;
    {
      ModelShards shards(table, map, groups, options);
      run_two_passes(shards, *group, is_told);
    }
    EXPECT_EQ(group->num_told > 0, is_told);
    EXPECT_EQ(group->num_unknown == 0, is_told);
    EXPECT_FALSE(group->knows_anything()) << "memory that is gone";
  }
}

}  // namespace
}  // namespace finetune::shard::remembered_test
