// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/format/tiled.hpp"

#include <gtest/gtest.h>

#include "support/messages.hpp"

namespace finetune::checkpoint::tiled_test {
namespace {

constexpr const char* moment = "exp_avg norm";

using finetune::tests::expect_facts;

PlannedSlice of(std::int64_t rank, std::int64_t offset, std::int64_t count,
                std::optional<core::Box> box = {}) {
  return {"exp_avg",
          {.name = "norm", .shape = {4, 6}, .offset = offset, .count = count, .box = box},
          rank};
}
const core::Box left = {{0, 0}, {4, 2}}, right = {{0, 2}, {4, 4}};

std::string problem(std::vector<PlannedSlice> slices) {
  return tiling_problem(std::move(slices)).value_or("");
}

TEST(PlannedSlices, ThatHoldEveryElementOnceAreATiling) {
  EXPECT_EQ(problem({}), "");
  EXPECT_EQ(problem({of(0, 0, 24)}), "");
  EXPECT_EQ(problem({of(3, 10, 14), of(1, 0, 10), of(2, 5, 0)}), "");
  EXPECT_EQ(problem({of(0, 0, 8, left), of(2, 9, 7, right), of(1, 0, 9, right)}), "");
}

TEST(PlannedSlices, ThatOverlapAreNamedWithElementAndRanks) {
  expect_facts(problem({of(3, 0, 11), of(1, 10, 14)}), "element 10", {moment, "1, 3"});
  expect_facts(problem({of(0, 0, 24), of(5, 0, 24)}), "element 0", {moment, "0, 5"});
  // Element 4 of the right box is the third of the second row.
  expect_facts(problem({of(0, 0, 8, left), of(1, 0, 5, right), of(2, 4, 12, right)}), "element 8",
               {"1, 2"});
  expect_facts(problem({of(0, 0, 24), of(1, 0, 16, right)}), "element 2", {"0, 1"});
}

TEST(PlannedSlices, ThatLeaveElementsOutAreNamedWithTheOthers) {
  expect_facts(problem({of(3, 0, 9), of(1, 10, 14)}), "element 9", {moment, "1, 3"});
  expect_facts(problem({of(2, 0, 23)}), "element 23", {"2"});
  expect_facts(problem({of(2, 1, 23)}), "element 0", {"2"});
  expect_facts(problem({of(4, 0, 16, right)}), "element 0", {"4"});
}

TEST(PlannedSlices, ThatAreNotOfOneTensorAreNamed) {
  PlannedSlice other = of(7, 12, 12);
  other.slice.shape = {2, 12};
  expect_facts(problem({of(1, 0, 12), other}), moment, {"4, 6", "2, 12", "1", "7"});
  other = of(7, 12, 12);
  other.slice.dtype = core::DType::bf16;
  expect_facts(problem({of(1, 0, 12), other}), moment, {"F32", "BF16"});
  expect_facts(problem({of(6, 20, 5)}), moment, {"6"});
  other.slice.name = "../norm";
  expect_facts(problem({other}), "exp_avg ../norm");
}

}  // namespace
}  // namespace finetune::checkpoint::tiled_test
