// SPDX-License-Identifier: Apache-2.0
// The second half of a test over two programs: another number of ranks reads what write_r4_test.cpp
// wrote.
#include <gtest/gtest.h>

#include "support/folders.hpp"
#include "support/ranks.hpp"
#include "unit/checkpoint/support.hpp"

namespace finetune::checkpoint::read_r4_test {
namespace {

TEST(Checkpoint, OfFourRanksIsReadByThese) {
  const auto& world = finetune::tests::world();
  const std::filesystem::path root =
      finetune::tests::build_folder() / "tests/checkpoint_of_four_ranks";
  const auto model = tests::uneven_model();
  tests::Shard shard = tests::cut(model, world.rank(), world.size());
  const auto found = find_and_load(world, {root, "auto"}, [&] { return shard.wanted(); });
  EXPECT_TRUE(found.has_value());
  EXPECT_EQ(found ? found->step : 0, 44);
  EXPECT_EQ(found ? found->manifest.world_size : 0, 4);
  EXPECT_EQ(tests::wrong_bytes(model, shard, 44), 0);
}

}  // namespace
}  // namespace finetune::checkpoint::read_r4_test
