// SPDX-License-Identifier: Apache-2.0
#include "core/log.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include "core/log_file.hpp"

namespace finetune::log::log_test {
namespace {

namespace fs = std::filesystem;

std::string read(const fs::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// The copy's lines without their times.
std::string lines(const fs::path& path) {
  static const std::regex time("(^|\n)[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8} ");
  return std::regex_replace(read(path), time, "$1");
}

class LogCopy : public testing::Test {
 protected:
  LogCopy() : folder_(fs::path(testing::TempDir()) / ("log_copy." + std::to_string(::getpid()))) {
    fs::create_directories(folder_);
  }
  ~LogCopy() override { fs::remove_all(folder_); }

  /// What `f` prints on stderr; stdout is not looked at.
  template <typename F>
  static std::string printed(F&& f) {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    f();
    testing::internal::GetCapturedStdout();
    return testing::internal::GetCapturedStderr();
  }

  fs::path folder_;
};

TEST_F(LogCopy, HasWhatWasPrintedBeforeItsFileWasKnown) {
  printed([&] {
    remember();
    info("first\nof two lines");
    warn("second");
    copy_to(folder_ / "finetune.log", 0600);
    error("third");
    note("for the file alone");
  });
  EXPECT_EQ(lines(folder_ / "finetune.log"),
            "first\nof two lines\nwarning: second\nerror: third\nfor the file alone\n");
}

TEST_F(LogCopy, GoesOnBehindWhatAnEarlierStartLeft) {
  std::ofstream(folder_ / "finetune.log") << "an earlier start\n";
  printed([&] {
    copy_to(folder_ / "finetune.log", 0600);
    info("this one");
  });
  EXPECT_EQ(lines(folder_ / "finetune.log"), "an earlier start\nthis one\n");
}

TEST_F(LogCopy, ThatCannotBeWrittenIsAWarningAndPrintingGoesOn) {
  fs::create_directory(folder_ / "is_a_folder");
  for (const fs::path& path : {folder_ / "none" / "finetune.log", folder_ / "is_a_folder"}) {
    const std::string err = printed([&] {
      copy_to(path, 0600);
      warn("one");
      warn("two");
    });
    EXPECT_TRUE(std::regex_match(
        err, std::regex("warning: [^\n]+: the log cannot be written [^\n]+\nwarning: one\n"
                        "warning: two\n")))
        << err;
  }
}

TEST_F(LogCopy, OfErrorsAloneGoesBehindWhatAnotherProcessWrites) {
  std::ofstream(folder_ / "finetune.log") << "of the first rank\n";
  printed([&] {
    copy_to(folder_ / "other.log", 0600);
    remember();
    error("before the folder was known");
    copy_errors_to(folder_ / "finetune.log");
    set_root(false);
    info("no error");
    warn("no error");
    error("of another rank");
    set_root(true);
  });
  EXPECT_EQ(lines(folder_ / "finetune.log"), "of the first rank\nerror: of another rank\n");
}

TEST_F(LogCopy, OfAProcessThatForgetsHasWhatIsPrintedLater) {
  printed([&] {
    copy_to(folder_ / "first.log", 0600);
    info("one");
    set_root(false);
    forget();
    info("to no file");
    remember();
    info("two");
    forget();
    remember();
    info("three");
    copy_to(folder_ / "second.log", 0600);
  });
  EXPECT_EQ(lines(folder_ / "first.log"), "one\n");
  EXPECT_EQ(lines(folder_ / "second.log"), "three\n");
}

TEST_F(LogCopy, OfErrorsMakesNoFile) {
  const std::string err = printed([&] {
    copy_errors_to(folder_ / "finetune.log");
    error("of another rank");
  });
  EXPECT_EQ(err, "error: of another rank\n");
  EXPECT_FALSE(fs::exists(folder_ / "finetune.log"));
}

TEST_F(LogCopy, DoesNotFollowALink) {
  fs::create_symlink(folder_ / "elsewhere", folder_ / "finetune.log");
  const std::string err = printed([&] { copy_to(folder_ / "finetune.log", 0600); });
  EXPECT_NE(err.find("the log cannot be written"), std::string::npos) << err;
  EXPECT_FALSE(fs::exists(folder_ / "elsewhere"));
}

TEST_F(LogCopy, IsNoDevice) {
  const std::string err = printed([&] { copy_to("/dev/null", 0600); });
  EXPECT_NE(err.find("it is no file"), std::string::npos) << err;
}

}  // namespace
}  // namespace finetune::log::log_test
