// SPDX-License-Identifier: Apache-2.0
// The first half of a test over two programs: see read_r4_test.cpp.
#include <gtest/gtest.h>

#include "support/folders.hpp"
#include "support/ranks.hpp"
#include "unit/checkpoint/support.hpp"

namespace finetune::checkpoint::write_r4_test {
namespace {

TEST(Checkpoint, IsWrittenByFourRanks) {
  const auto& world = finetune::tests::world();
  const std::filesystem::path root =
      finetune::tests::build_folder() / "tests/checkpoint_of_four_ranks";
  if (world.is_root()) std::filesystem::remove_all(root);
  const SaveReport report = tests::save_model(world, root, 44, tests::uneven_model());
  EXPECT_GT(report.payload_bytes, 0);
}

}  // namespace
}  // namespace finetune::checkpoint::write_r4_test
