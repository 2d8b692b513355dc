// SPDX-License-Identifier: Apache-2.0
#include "schedule/stages.hpp"

#include <gtest/gtest.h>

#include "core/error.hpp"

namespace finetune::schedule::stages_test {
namespace {

using Units = std::vector<int>;

TEST(Stages, AUnitIsCompleteWhereNoEarlierStageHasIt) {
  // A tied embedding, two blocks, adapters of both in a unit of their own.
  const Stages stages({{0}, {1, 3}, {2, 3}, {4, 0}}, std::vector<Unit>(5));
  EXPECT_EQ(stages.completed(stages.head()), Units({4}));
  EXPECT_EQ(stages.completed(stages.block(1)), Units({2}));
  EXPECT_EQ(stages.completed(stages.block(0)), Units({1, 3}));
  EXPECT_EQ(stages.completed(stages.embedding()), Units({0}));
}

TEST(Stages, NeighboursShareWhatIsOpenAllAlong) {
  EXPECT_EQ(Stages({{0}, {1, 3}, {2, 3}, {0}}, std::vector<Unit>(4)).all_along(), Units({3}));
  EXPECT_EQ(Stages({{0}, {0}, {0}}, std::vector<Unit>(1)).all_along(), Units({0}));
  EXPECT_TRUE(Stages({{0}, {1}, {0}}, std::vector<Unit>(2)).all_along().empty());
}

TEST(Stages, APassNeedsAnEmbeddingAndAHead) {
  EXPECT_THROW(Stages({{0}}, std::vector<Unit>(1)), core::Error);
}

}  // namespace
}  // namespace finetune::schedule::stages_test
