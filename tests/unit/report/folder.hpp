#pragma once
// SPDX-License-Identifier: Apache-2.0
// An output folder that a test fills.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace finetune::tests {

class RunFolderFixture : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(testing::TempDir()) /
              (std::string("finetune.report.") + info->test_suite_name() + "." + info->name());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  const std::filesystem::path& folder() const { return folder_; }
  void put(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  void add(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary | std::ios::app) << text;
  }

 private:
  std::filesystem::path folder_;
};

}  // namespace finetune::tests
