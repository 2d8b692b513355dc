// SPDX-License-Identifier: Apache-2.0
#include "train/run/detail/output_folder.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/error.hpp"
#include "support/folders.hpp"

namespace finetune::train::output_folder_test {
namespace {

namespace fs = std::filesystem;

class OutputFolderTest : public testing::Test {
 protected:
  OutputFolderTest() : root_(tests::build_folder() / "tests/train.output") {
    fs::remove_all(root_);
  }
  ~OutputFolderTest() override { fs::remove_all(root_); }

  OutputFolder open(core::Json choice = {}) const {
    return OutputFolder(root_, {}, std::move(choice), world_);
  }

  std::string text(const std::string& name) const {
    std::ostringstream all;
    all << std::ifstream(root_ / name).rdbuf();
    return all.str();
  }

  world::World world_;
  fs::path root_;
};

TEST_F(OutputFolderTest, IsHeldFromConstructionOn) {
  const OutputFolder output = open();
  EXPECT_THROW(open(), core::Error);
  EXPECT_TRUE(fs::exists(root_ / "finetune.log"));
  EXPECT_TRUE(output.local_root().empty());
}

TEST_F(OutputFolderTest, HoldsTheResolvedDeck) {
  open().write_deck("[train]\n");
  EXPECT_EQ(text("input.resolved.toml"), "[train]\n");
}

TEST_F(OutputFolderTest, ANewRunKeepsTheMetricsOfTheOneBefore) {
  OutputFolder output = open();
  output.begin_metrics().append("{}");
  output.begin_metrics().append("{\"step\": 1}");
  EXPECT_EQ(text("metrics.jsonl"), "{\"step\": 1}\n");
  EXPECT_EQ(text("metrics.jsonl.old-1"), "{}\n");
}

TEST_F(OutputFolderTest, ARestartDropsRowsOfLostStepsUnlessTheRunWasFinished) {
  OutputFolder output = open();
  {
    metrics::RecordFile rows = output.begin_metrics();
    rows.append("{}");
    rows.append("{}");
  }
  EXPECT_EQ(output.continue_metrics(3, true).size_bytes(), 6);
  EXPECT_EQ(output.continue_metrics(3, false).size_bytes(), 3);
  EXPECT_EQ(text("metrics.jsonl"), "{}\n");
}

TEST_F(OutputFolderTest, ARunKeepsItsIdOrGetsANewOne) {
  std::string id;
  {
    OutputFolder output = open();
    id = output.run_folder()->continue_line({}).run_id;
    EXPECT_FALSE(id.empty());
    output.note_start(0, "deck", 3);
  }
  OutputFolder output = open();
  EXPECT_EQ(output.run_id(), id);
  EXPECT_NE(output.run_folder()->continue_line({}).run_id, id);
}

TEST_F(OutputFolderTest, NotesWhatAStartChose) {
  OutputFolder output = open({{"sharding", "NO_SHARD"}});
  output.note_start(0, "deck", 3);
  EXPECT_EQ(checkpoint::noted_choice(root_), core::Json({{"sharding", "NO_SHARD"}}));
}

}  // namespace
}  // namespace finetune::train::output_folder_test
