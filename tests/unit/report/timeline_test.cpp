// SPDX-License-Identifier: Apache-2.0
// Memory of profiled steps, as reports show it.
#include <gtest/gtest.h>

#include <chrono>
#include <variant>

#include "report/page.hpp"
#include "report/pictures.hpp"
#include "unit/report/filled_folder.hpp"

namespace finetune::report::timeline_test {
namespace {

using finetune::tests::FilledFolder;
namespace fs = std::filesystem;

class Timeline : public FilledFolder {};

TEST_F(Timeline, IsDrawnAgainstThePlan) {
  fill();
  const RunHistory run = read_run(folder());
  ASSERT_TRUE(run.timeline);
  const auto drawn = pictures("memory-timeline", std::span(&run, 1));
  ASSERT_EQ(drawn.size(), 1u);
  const auto& plot = std::get<plot::LayerPlot>(drawn[0]);
  EXPECT_EQ(plot.x, (std::vector<double>{0, 0.5, 1.25}));
  EXPECT_EQ(plot.layers.size(), 2u);
  EXPECT_EQ(plot.limit, 2.0);
  const std::string page = report::page({read_reported(folder(), now)}, now, plot::Spacing::linear);
  EXPECT_NE(page.find("Memory of tensors in steps 9 to 12, MiB (rank 0)"), std::string::npos);
  EXPECT_NE(page.find(">planned<"), std::string::npos);
  EXPECT_NE(page.find("most while profiled"), std::string::npos);
  EXPECT_NE(page.find("2.50 MiB"), std::string::npos);
}

TEST_F(Timeline, ThatWasWrittenLastCounts) {
  fill();
  put_timeline(
      "memory.steps-1-4.json",
      R"({"rank": 0, "first_step": 1, "last_step": 4, "at_s": [0], "mib": {"weights": [1]}})");
  const auto later =
      fs::last_write_time(folder() / "profile/memory.steps-9-12.json") + std::chrono::seconds(5);
  fs::last_write_time(folder() / "profile/memory.steps-1-4.json", later);
  EXPECT_EQ(read_run(folder()).timeline->first_step, 1);
}

TEST_F(Timeline, ThatIsDamagedIsNone) {
  fill();
  for (const char* text : {"", "{", "[]", R"({"rank": 0})",
                           R"({"rank": 0, "first_step": 9, "last_step": 12, "at_s": [0, 1],
                               "mib": {"weights": [1]}})"}) {
    fs::remove_all(folder() / "profile");
    put_timeline("memory.steps-9-12.json", text);
    EXPECT_FALSE(read_run(folder()).timeline) << text;
  }
}

}  // namespace
}  // namespace finetune::report::timeline_test
