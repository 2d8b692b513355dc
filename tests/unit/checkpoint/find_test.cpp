// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/load/find.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include "checkpoint/format/retire.hpp"
#include "core/error.hpp"
#include "unit/checkpoint/support.hpp"

namespace finetune::checkpoint::find_test {
namespace {

namespace fs = std::filesystem;

class Find : public testing::Test {
 protected:
  void save(std::int64_t step) { tests::save_model({}, root(), step, model_); }

  void spoil(std::int64_t step) { fs::remove(root() / folder_name(step) / "state.json"); }

  const fs::path& root() const { return folder_.path(); }

  std::int64_t found(const std::string& resume = "auto") const {
    const auto result = find({}, root(), resume);
    return result ? result->step : -1;
  }

  std::vector<std::string> names() const {
    std::vector<std::string> result;
    for (const auto& entry : fs::directory_iterator(root()))
      result.push_back(entry.path().filename());
    std::ranges::sort(result);
    return result;
  }

  static int exit_code(const std::function<void()>& f) {
    try {
      f();
    } catch (const core::Error& error) {
      return error.exit_code();
    }
    return 0;
  }

  std::vector<tests::TestTensor> model_ = {{"param", "w", {3}, core::DType::f32}};
  tests::SharedFolder folder_;
};

TEST_F(Find, ReturnsNothingWhereNothingWasSaved) {
  EXPECT_EQ(found(), -1);
  EXPECT_FALSE(find({}, root() / "missing", "auto"));
}

TEST_F(Find, TakesTheNewestByStep) {
  save(9);
  save(10);
  save(2);
  EXPECT_EQ(found(), 10);
  EXPECT_EQ(found("step-0000000009"), 9);
  EXPECT_EQ(find({}, root(), "auto", 10)->step, 9);
}

TEST_F(Find, PassesOverDamagedOnesWithAWarningEach) {
  for (const std::int64_t step : {1, 2, 3})
    save(step);
  spoil(3);
  tests::flip_bit(root() / "step-0000000002/MANIFEST.json", 40, 3);
  testing::internal::CaptureStderr();
  EXPECT_EQ(found(), 1);
  const std::string warnings = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(warnings.starts_with("warning: step-0000000003 is skipped: ")) << warnings;
  EXPECT_NE(warnings.find("state.json: cannot be opened (No such file or directory)"),
            std::string::npos)
      << warnings;
  EXPECT_NE(warnings.find("\nwarning: step-0000000002 is skipped: "), std::string::npos)
      << warnings;
  EXPECT_EQ(std::ranges::count(warnings, '\n'), 2);
}

TEST_F(Find, RefusesToStartAnewWhenAllAreDamaged) {
  save(1);
  spoil(1);
  testing::internal::CaptureStderr();
  EXPECT_EQ(exit_code([&] { found(); }), 65);
  testing::internal::GetCapturedStderr();
}

TEST_F(Find, ANamedCheckpointIsTheOnlyChoice) {
  save(1);
  save(2);
  spoil(2);
  EXPECT_EQ(exit_code([&] { found("step-0000000002"); }), 65);
  EXPECT_EQ(exit_code([&] { found("step-0000000003"); }), 65);
  EXPECT_EQ(exit_code([&] { found("../step-0000000001"); }), 65);
}

TEST_F(Find, NeverMeansNever) {
  save(5);
  EXPECT_EQ(found("never"), -1);
}

TEST_F(Find, TakesNothingThatWasNotPublished) {
  save(1);
  save(2);
  // What a kill leaves behind: everything but the last rename; a removal half done; odd names.
  fs::rename(root() / "step-0000000002", root() / ".tmp-step-0000000002.AbCdEf");
  fs::create_directory(root() / "step-3");
  fs::create_directory(root() / ".del-step-0000000009.AbCdEf");
  fs::create_directory_symlink(root() / ".tmp-step-0000000002.AbCdEf", root() / "step-0000000002");
  testing::internal::CaptureStderr();
  EXPECT_EQ(found(), 1);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  // The next save clears up and leaves alone what is not ours.
  save(4);
  EXPECT_EQ(names(), (std::vector<std::string>{"step-0000000001", "step-0000000002",
                                               "step-0000000004", "step-3"}));
}

TEST_F(Find, ARenamedCheckpointIsRefused) {
  save(1);
  fs::rename(root() / "step-0000000001", root() / "step-0000000002");
  testing::internal::CaptureStderr();
  EXPECT_EQ(exit_code([&] { found(); }), 65);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("its manifest is of step 1"),
            std::string::npos);
}

TEST_F(Find, OpenTakesAFolderOrTheFolderOfFolders) {
  save(1);
  save(2);
  EXPECT_EQ(open(root()).step, 2);
  EXPECT_EQ(open(root() / "step-0000000001").step, 1);
  EXPECT_EQ(open(root() / "step-0000000001/").step, 1);
  EXPECT_EQ(exit_code([&] { open(root() / "missing"); }), 65);
}

TEST_F(Find, WhatOthersCouldHaveWrittenIsNotGoneOnFromButMayBeOpened) {
  save(1);
  save(2);
  save(3);
  fs::permissions(root() / "step-0000000003", fs::perms::group_write, fs::perm_options::add);
  const bool is_root = ::geteuid() == 0;
  if (is_root) {
    ASSERT_EQ(::chown((root() / "step-0000000002").c_str(), 65534, 65534), 0);
  }
  EXPECT_EQ(find({}, root(), "auto")->step, is_root ? 1 : 2);
  EXPECT_EQ(exit_code([&] { find({}, root(), "step-0000000003"); }), 65);
  EXPECT_EQ(open(root()).step, 3);
}

TEST_F(Find, AStepThatIsNotThereIsToldWithThoseThatAre) {
  save(1);
  save(4);
  try {
    find({}, root(), "step-0000000003");
    ADD_FAILURE() << "it was found";
  } catch (const core::Error& error) {
    EXPECT_NE(std::string(error.what()).find("there are step-0000000004, step-0000000001"),
              std::string::npos)
        << error.what();
  }
}

TEST_F(Find, RetireKeepsTheNewestGoodOnes) {
  for (const std::int64_t step : {1, 2, 3, 4, 90})
    save(step);
  spoil(3);
  // 90 is of another run, 3 is damaged: neither counts nor goes.
  retire(root(), {.newest = 2}, 4);
  EXPECT_EQ(names(), (std::vector<std::string>{"step-0000000002", "step-0000000003",
                                               "step-0000000004", "step-0000000090"}));
}

TEST_F(Find, RetireFollowsNoLinks) {
  save(1);
  save(2);
  const fs::path victim = root() / "victim";
  fs::create_directory(victim);
  tests::write_file(victim / "precious", "x");
  fs::create_directory_symlink(victim, root() / "step-0000000001/link");
  fs::create_directory_symlink(victim, root() / "step-0000000000");
  retire(root(), {.newest = 1}, any_step);
  EXPECT_EQ(names(), (std::vector<std::string>{"step-0000000000", "step-0000000002", "victim"}));
  EXPECT_TRUE(fs::exists(victim / "precious"));
}

}  // namespace
}  // namespace finetune::checkpoint::find_test
