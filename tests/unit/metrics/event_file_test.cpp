// SPDX-License-Identifier: Apache-2.0
#include "metrics/tensorboard/event_file.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>

#include "core/hash.hpp"
#include "support/files.hpp"
#include "support/folders.hpp"

namespace finetune::metrics::event_file_test {
namespace {

namespace fs = std::filesystem;

/// Event files in a folder of their own.
class EventFileTest : public testing::Test {
 protected:
  EventFileTest()
      : folder_(tests::build_folder() / "tests/events" /
                testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~EventFileTest() override { fs::remove_all(folder_); }

  std::vector<fs::path> files() const {
    std::vector<fs::path> paths;
    for (const auto& entry : fs::directory_iterator(folder_))
      paths.push_back(entry.path());
    std::ranges::sort(paths);
    return paths;
  }

  /// A start that trains these steps; returns its file.
  fs::path write_steps(std::int64_t first, std::int64_t last) const {
    EventFile file(folder_, first);
    for (std::int64_t step = first; step <= last; ++step)
      file.add({.wall_time_s = 1, .step = step, .numbers = {{"train/loss", 0.5}}});
    return file.path();
  }

  /// Bytes of the file that such a start would have written; times are not compared.
  std::size_t size_with_steps(std::int64_t first, std::int64_t last) const {
    std::size_t size = record_of(version_event(1)).size() + record_of(start_event(1, first)).size();
    for (std::int64_t step = first; step <= last; ++step)
      size +=
          record_of(to_bytes({.wall_time_s = 1, .step = step, .numbers = {{"train/loss", 0.5}}}))
              .size();
    return size;
  }

  fs::path folder_;
};

TEST(Events, HaveTheBytesThatTensorBoardItselfWrites) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::string bytes =
      record_of(version_event(1790000000.5)) + record_of(start_event(1790000000.5, 1)) +
      record_of(to_bytes({.wall_time_s = 1790000001,
                          .step = 0,
                          .numbers = {},
                          .texts = {{"deck", as_code("[train]\nseed = 1\n# gr\xc3\xbcn")}}})) +
      record_of(to_bytes({.wall_time_s = 1790000002.25,
                          .step = 1,
                          .numbers = {{"train/loss", 0.1}, {"train/lr", 1e-5}}})) +
      record_of(to_bytes({.wall_time_s = 1790000003,
                          .step = 5'000'000'000,
                          .numbers = {{"train/loss", nan}, {"train/lr", 0}},
                          .texts = {{"long", std::string(300, 'a')}}})) +
      record_of(to_bytes({.wall_time_s = 1790000004,
                          .step = 2,
                          .bars = {{"norms_by_layer/weight", -1, {0.5, 0, 2.25}}}}));
  EXPECT_EQ(bytes,
            tests::file_text(tests::source_folder() / "tests/golden/metrics/events.tfevents"));
}

TEST(Events, TellTheirStep) {
  EXPECT_EQ(step_of_event(to_bytes({.wall_time_s = 1, .step = 7, .numbers = {{"a", 1}}})), 7);
  EXPECT_EQ(step_of_event(version_event(1)), 0);
  EXPECT_EQ(step_of_event(start_event(1, 3)), 3);
  EXPECT_EQ(step_of_event("\x09 cut"), 0);
}

TEST_F(EventFileTest, ARestartKeepsWhatItsCheckpointCountsOn) {
  const fs::path file = write_steps(1, 10);
  cut_event_files(folder_, 6);
  EXPECT_EQ(fs::file_size(file), size_with_steps(1, 6));
}

TEST_F(EventFileTest, FilesOfStartsThatLeaveNothingAreRemoved) {
  const fs::path first = write_steps(1, 10);
  cut_event_files(folder_, 6);
  write_steps(7, 9);
  cut_event_files(folder_, 6);
  EXPECT_EQ(files(), std::vector{first});
  EXPECT_EQ(fs::file_size(first), size_with_steps(1, 6));
}

TEST_F(EventFileTest, TheNextStartComesBehindTheOneBeforeEvenIfAClockIsWrong) {
  write_steps(1, 2);
  fs::rename(files().at(0), folder_ / "events.out.tfevents.8000000000.elsewhere");
  EXPECT_EQ(write_steps(3, 4).filename().string().substr(0, 30), "events.out.tfevents.8000000001");
}

TEST_F(EventFileTest, AKillInTheMidstOfARecordCostsThatRecord) {
  const fs::path file = write_steps(1, 3);
  const std::string whole = tests::file_text(file);
  for (std::size_t size = size_with_steps(1, 3) - 1; size > size_with_steps(1, 2); --size) {
    std::ofstream(file, std::ios::binary) << whole.substr(0, size);
    cut_event_files(folder_, 3);
    ASSERT_EQ(fs::file_size(file), size_with_steps(1, 2)) << size;
  }
}

TEST_F(EventFileTest, WhatIsDamagedIsCutWithAllThatFollows) {
  const fs::path file = write_steps(1, 3);
  const std::string whole = tests::file_text(file);
  const std::size_t second = size_with_steps(1, 1);
  for (std::size_t i = second; i < size_with_steps(1, 2); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
    std::ofstream(file, std::ios::binary) << damaged;
    cut_event_files(folder_, 3);
    ASSERT_EQ(fs::file_size(file), second) << i;
  }
}

TEST_F(EventFileTest, ANewRunSetsThoseOfTheOneBeforeAside) {
  for (const int run : {1, 2}) {
    write_steps(1, 2);
    write_steps(3, 4);
    set_aside_event_files(folder_);
    const std::string old = "events.old-" + std::to_string(run) + ".";
    EXPECT_EQ(std::ranges::count_if(files(),
                                    [&](const fs::path& path) {
                                      const std::string name = path.filename().string();
                                      return name.starts_with(old) &&
                                             name.find("tfevents") == name.npos;
                                    }),
              2);
  }
  EXPECT_EQ(files().size(), 4u);
}

}  // namespace
}  // namespace finetune::metrics::event_file_test
