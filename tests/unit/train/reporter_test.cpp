// SPDX-License-Identifier: Apache-2.0
#include "train/run/detail/reporter.hpp"
#include "support/folders.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

namespace finetune::train::reporter_test {
namespace {

namespace fs = std::filesystem;
using metrics::Progress;

class ReporterTest : public testing::Test {
 protected:
  ReporterTest() : path_(tests::build_folder() / "tests/train.reporter.jsonl") {
    fs::remove(path_);
  }
  ~ReporterTest() override { fs::remove(path_); }

  ReportFiles files() const { return {.metrics = metrics::RecordFile(path_, 0)}; }

  std::string rows() const {
    std::ostringstream all;
    all << std::ifstream(path_).rdbuf();
    return all.str();
  }

  fs::path path_;
};

TEST_F(ReporterTest, WritesARowForEverythingItReports) {
  Reporter reporter(Progress::Style::silent, 4, 1, files());
  reporter.step({.step = 1, .loss = 2.5});
  testing::internal::CaptureStdout();
  reporter.validated("step 1", 1, {.loss = 1.5, .exact_match = 0.25, .num_samples = 8}, true);
  reporter.saved({.folder = "out/step-0000000001", .step = 1}, checkpoint::Level::local);
  const std::string said = testing::internal::GetCapturedStdout();
  EXPECT_TRUE(
      said.starts_with("step 1: validation loss 1.5000, exact match 25.0 % of 8\n"
                       "saved out/step-0000000001: "))
      << said;
  const std::string written = rows();
  EXPECT_EQ(std::ranges::count(written, '\n'), 3);
  for (const char* part : {"\"loss\": 2.5", "\"validation_loss\": 1.5", "\"level\": \"local\""})
    EXPECT_NE(written.find(part), std::string::npos) << written;
  EXPECT_EQ(reporter.metrics_bytes(), std::ssize(written));
}

TEST_F(ReporterTest, WithoutAFileOrAnswersSaysLess) {
  Reporter reporter(Progress::Style::silent, 4, 1, {});
  reporter.sync_metrics();
  testing::internal::CaptureStdout();
  reporter.validated("before training", 0, {.loss = 1.5}, false);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "before training: validation loss 1.5000\n");
  EXPECT_EQ(reporter.metrics_bytes(), 0);
  EXPECT_FALSE(fs::exists(path_));
}

TEST_F(ReporterTest, WritesAnEventForEverythingItReports) {
  const fs::path folder = tests::build_folder() / "tests/train.reporter.events";
  fs::remove_all(folder);
  fs::create_directories(folder);
  ReportFiles files;
  files.events.emplace(folder, 1);
  const fs::path path = files.events->path();
  Reporter reporter(Progress::Style::silent, 4, 1, std::move(files));
  reporter.show("deck", 0, "a deck");
  reporter.step({.step = 1, .loss = 2.5});
  testing::internal::CaptureStdout();
  reporter.validated("step 1", 1, {.loss = 1.5, .exact_match = 0.25, .num_samples = 8}, true);
  reporter.answered({.step = 1, .answers = {{"a question", "an answer", "another"}}});
  reporter.saved({.folder = "out/step-0000000001", .step = 1}, checkpoint::Level::local);
  testing::internal::GetCapturedStdout();
  std::ostringstream bytes;
  bytes << std::ifstream(path, std::ios::binary).rdbuf();
  for (const char* part : {"a deck", "train/loss", "validation/loss", "validation/exact_match",
                           "an answer", "checkpoint_local/write_s"})
    EXPECT_NE(bytes.str().find(part), std::string::npos) << part;
  fs::remove_all(folder);
}

/// No file may grow while this lives, as with a full disk.
class FullDisk {
 public:
  FullDisk() {
    std::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit none = {0, before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &none), 0);
  }
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, SIG_DFL);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit before_{};
};

/// What `f` writes to stderr, which no limit on files keeps back.
template <typename F>
std::string said_through_a_pipe(const F& f) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const int before = ::dup(STDERR_FILENO);
  ::dup2(ends[1], STDERR_FILENO);
  ::close(ends[1]);
  f();
  ::dup2(before, STDERR_FILENO);
  ::close(before);
  std::string said(4096, '\0');
  const ssize_t size = ::read(ends[0], said.data(), said.size());
  ::close(ends[0]);
  said.resize(static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  return said;
}

TEST_F(ReporterTest, SaysOnceThatRowsAreLost) {
  Reporter reporter(Progress::Style::silent, 4, 1, files());
  const std::string said = said_through_a_pipe([&] {
    const FullDisk full;
    reporter.step({.step = 1});
    reporter.step({.step = 2});
  });
  EXPECT_TRUE(said.starts_with("warning: rows of metrics.jsonl are lost: ")) << said;
  EXPECT_EQ(said.find("rows of"), said.rfind("rows of")) << said;
}

TEST_F(ReporterTest, GoesOnWithoutEventsAndSaysSoOnce) {
  const fs::path folder = tests::build_folder() / "tests/train.reporter.full";
  fs::remove_all(folder);
  fs::create_directories(folder);
  ReportFiles files;
  files.events.emplace(folder, 1);
  Reporter reporter(Progress::Style::silent, 4, 1, std::move(files));
  const std::string said = said_through_a_pipe([&] {
    const FullDisk full;
    reporter.step({.step = 1});
    reporter.step({.step = 2});
    reporter.sync_metrics();
  });
  EXPECT_TRUE(said.starts_with("warning: events for TensorBoard are lost: ")) << said;
  EXPECT_EQ(said.find("are lost"), said.rfind("are lost")) << said;
  fs::remove_all(folder);
}

}  // namespace
}  // namespace finetune::train::reporter_test
