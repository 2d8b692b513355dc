// SPDX-License-Identifier: Apache-2.0
// An evaluation that goes on.
#include "tasks/progress.hpp"

#include <gtest/gtest.h>

namespace finetune::tasks::progress_test {
namespace {

TEST(Progress, GoesOnWithWhatWasWritten) {
  std::string file;
  const auto write = [&](const std::string& line) { file += line; };
  {
    Progress first("", "f", write);
    EXPECT_FALSE(first.continues());
    first.add("m/t/0", {-1.25, true});
    first.add("m/t/1", "an\nanswer");
  }
  const Progress second(file, "f", {});
  EXPECT_TRUE(second.continues());
  EXPECT_EQ(second.size(), 2u);
  EXPECT_EQ(*second.find("m/t/0"), core::Json({-1.25, true}));
  EXPECT_EQ(*second.find("m/t/1"), "an\nanswer");
  EXPECT_EQ(second.find("m/t/2"), nullptr);
}

TEST(Progress, DropsALineThatWasCutOff) {
  std::string file;
  Progress first("", "f", [&](const std::string& line) { file += line; });
  first.add("a", 1);
  first.add("b", 2);
  const Progress second(file.substr(0, file.size() - 1), "f", {});
  EXPECT_EQ(second.size(), 1u) << "without its end a line may be a part of one";
}

TEST(Progress, OfAnotherEvaluationIsForgotten) {
  std::string file;
  Progress first("", "f", [&](const std::string& line) { file += line; });
  first.add("a", 1);
  std::string anew;
  const Progress second(file, "g", [&](const std::string& line) { anew += line; });
  EXPECT_FALSE(second.continues());
  EXPECT_EQ(second.find("a"), nullptr);
  EXPECT_EQ(anew, "{\"fingerprint\":\"g\"}\n");
}

TEST(Progress, OfADamagedFileIsWhatCanBeRead) {
  const Progress progress("{\"fingerprint\": \"f\"}\nrubbish\n{\"key\": \"a\", \"value\": 3}\n[]\n",
                          "f", {});
  EXPECT_EQ(progress.size(), 1u);
  EXPECT_FALSE(Progress("rubbish\n", "f", {}).continues());
}

}  // namespace
}  // namespace finetune::tasks::progress_test
