// SPDX-License-Identifier: Apache-2.0
#include "preflight/detail/report.hpp"

#include <gtest/gtest.h>

namespace finetune::preflight::report_test {
namespace {

Finding finding(Grade grade) {
  return {"cores", "seen", {{grade, {"n1", "is odd", "why", "Change it."}}}};
}

TEST(Report, OfNothingWrongIsReady) {
  const Report report{{{"cores", "seen"}}};
  EXPECT_EQ(report.exit_code(), 0);
  EXPECT_EQ(report.verdict(), "ready");
  EXPECT_EQ(to_string(report), "  cores  good     seen");
}

TEST(Report, WithWarningsIsReadyAndCountsThem) {
  const Report report{{finding(Grade::warning), finding(Grade::warning), finding(Grade::note)}};
  EXPECT_EQ(report.exit_code(), 0);
  EXPECT_EQ(report.verdict(), "ready, with 2 warnings");
}

TEST(Report, OfSomethingBadNamesTheNode) {
  const Report report{{finding(Grade::warning), finding(Grade::bad)}};
  EXPECT_EQ(report.exit_code(), 69);
  EXPECT_EQ(report.verdict(), "not ready: n1: is odd (why). Change it.");
}

TEST(Report, TellsOfManyTheFirstAndHowManyMore) {
  Finding many{.subject = "memory", .text = ""};
  for (int i = 0; i < 20; ++i)
    many.fail({"n" + std::to_string(i), "lacks memory", "", ""});
  shorten(many);
  ASSERT_EQ(many.problems.size(), most_told + 1);
  EXPECT_EQ(many.problems.back().message.problem, "the same of 12 more");
  EXPECT_EQ(many.problems.back().grade, Grade::bad);
}

}  // namespace
}  // namespace finetune::preflight::report_test
