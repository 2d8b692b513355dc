// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/settings.hpp"

#include <gtest/gtest.h>

#include "core/error.hpp"
#include "support/settings.hpp"

namespace finetune::checkpoint::settings_test {
namespace {

CheckpointSettings read(const std::string& text) {
  return tests::read_table<CheckpointSettings>(text, "checkpoint");
}

std::string refusal(const std::string& text) {
  try {
    read(text);
  } catch (const core::Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(CheckpointSettings, HaveDefaultsAndAreRead) {
  EXPECT_EQ(read("").save_total_limit, 2);
  EXPECT_EQ(read("").files, Files::node);
  const CheckpointSettings settings = read(
      "[checkpoint]\nsave_steps = 5\nsave_total_limit = 1\nfiles = \"rank\"\n"
      "resume = \"step-0000000200\"\n");
  EXPECT_EQ(settings.save_steps, 5);
  EXPECT_EQ(settings.save_total_limit, 1);
  EXPECT_EQ(settings.files, Files::rank);
  EXPECT_EQ(settings.resume, "step-0000000200");
}

TEST(CheckpointSettings, RefuseWhatCannotBeDone) {
  for (const char* line :
       {"save_steps = -1", "save_total_limit = 0", "files = \"shared\"", "resume = \"latest\"",
        "resume = \"../step-0000000200\"", "resume = \"auto#2\"", "resume = \"never#\"",
        "asynchronous = true", "access = \"0777\"", "local_dir = \"/tmp\"", "local_steps = 5",
        "on_error = \"ignore\"", "keep_every = -1", "save_epochs = -0.5"})
    EXPECT_NE(refusal("[checkpoint]\n" + std::string(line) + "\n"), "accepted") << line;
  EXPECT_EQ(refusal("[checkpoint]\nsave_epochs = 0.5\n"), "accepted");
  EXPECT_EQ(refusal("[checkpoint]\nresume = \"never#2\"\n"), "accepted");
  EXPECT_EQ(refusal("[checkpoint]\nresume = \"step-0000000200#13\"\n"), "accepted");
  EXPECT_NE(refusal("[checkpoint]\nsave_epochs = 0.5\nsave_steps = 5\n")
                .find("both save_steps and save_epochs are set"),
            std::string::npos);
  EXPECT_NE(refusal("[checkpoint]\nresume = \"latest\"\n").find("input.toml:2"), std::string::npos);
}

}  // namespace
}  // namespace finetune::checkpoint::settings_test
