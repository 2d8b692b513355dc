// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/lineage.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

namespace finetune::checkpoint::lineage_test {
namespace {

using Parents = std::vector<Ancestor>;

Line back_to(std::string run_id, const std::string& resume, const Line& last, const Line* from,
             std::int64_t step) {
  Line line = go_back(resume, last, from, step);
  line.run_id = std::move(run_id);
  return line;
}

TEST(Lineage, HoldsItsRunAndWhatItsParentsSavedBeforeItBegan) {
  const Line first{"first", {}};
  const Line second = back_to("second", "step-0000000020", first, &first, 20);
  const Line third = back_to("third", "step-0000000030", second, &second, 30);
  EXPECT_EQ(third.lineage.parents, (Parents{{"second", 30}, {"first", 20}}));
  EXPECT_EQ(third.lineage.branch, 2);
  EXPECT_TRUE(third.holds("third", 5)) << "its own, whatever the step";
  EXPECT_TRUE(third.holds("second", 30));
  EXPECT_FALSE(third.holds("second", 31));
  EXPECT_TRUE(third.holds("first", 20));
  EXPECT_FALSE(third.holds("first", 30));
  EXPECT_FALSE(third.holds("fourth", 1));
  EXPECT_FALSE(first.holds("second", 20)) << "what began later is not its past";
}

TEST(Lineage, RemembersWhatWentBackBefore) {
  const Line first{"first", {}};
  const Line second = back_to("second", "step-0000000020", first, &first, 20);
  const Line third = back_to("third", "step-0000000030", second, &second, 30);
  EXPECT_FALSE(first.was_begun_by("auto"));
  EXPECT_TRUE(third.was_begun_by("step-0000000030"));
  EXPECT_TRUE(third.was_begun_by("step-0000000020"));
  EXPECT_FALSE(third.was_begun_by("step-0000000020#2"));
  const Line anew = back_to("anew", "never", third, nullptr, 0);
  EXPECT_TRUE(anew.was_begun_by("never"));
  EXPECT_TRUE(anew.was_begun_by("step-0000000020")) << "though that is no past of it";
  EXPECT_TRUE(anew.lineage.parents.empty());
}

TEST(Lineage, ReadsWhatItWrites) {
  const Line first{"first", {}};
  const Lineage written = back_to("second", "step-0000000020#3", first, &first, 20).lineage;
  const Lineage read = Lineage::from_json(written.to_json());
  EXPECT_EQ(read.branch, 1);
  EXPECT_EQ(read.parents, written.parents);
  EXPECT_EQ(read.begun_by, written.begun_by);
  EXPECT_EQ(Lineage::from_json(core::Json::object()).to_json(), Lineage().to_json());
}

TEST(Lineage, LeavesOutWhatIsOfNoUse) {
  const Lineage lineage = Lineage::from_json(
      {{"branch", -1},
       {"parents",
        {{{"run_id", "a"}, {"step", 2}}, {{"run_id", 5}}, {{"run_id", "b"}, {"step", 1}}}},
       {"begun_by", {1, "never"}}});
  EXPECT_EQ(lineage.branch, 0);
  EXPECT_EQ(lineage.parents, (Parents{{"a", 2}})) << "what lies behind a gap is not its past";
  EXPECT_EQ(lineage.begun_by, (std::vector<std::string>{"never"}));
  for (const core::Json& other : {core::Json(), core::Json(5), core::Json({{"parents", 3}})})
    EXPECT_TRUE(Lineage::from_json(other).parents.empty()) << other;
}

TEST(Lineage, CountsNoFurtherThanCanBeCountedOn) {
  constexpr auto largest = std::numeric_limits<std::int64_t>::max();
  for (const core::Json& count :
       {core::Json(largest), core::Json(std::numeric_limits<std::uint64_t>::max())}) {
    const Lineage lineage =
        Lineage::from_json({{"branch", count}, {"parents", {{{"run_id", "a"}, {"step", count}}}}});
    EXPECT_EQ(lineage.branch, 0) << count;
    EXPECT_TRUE(lineage.parents.empty()) << count;
  }
}

TEST(ResumeNumber, IsWhatFollowsTheLastMark) {
  EXPECT_EQ(without_number("never#2"), "never");
  EXPECT_EQ(without_number("step-0000000020#13"), "step-0000000020");
  for (const char* plain : {"never", "auto", "never#", "never#x", "never#2x", "#", ""})
    EXPECT_EQ(without_number(plain), plain);
  EXPECT_EQ(once_more("never"), "never#2");
  EXPECT_EQ(once_more("never#2"), "never#3");
  EXPECT_EQ(once_more("step-0000000020#99"), "step-0000000020#100");
}

}  // namespace
}  // namespace finetune::checkpoint::lineage_test
