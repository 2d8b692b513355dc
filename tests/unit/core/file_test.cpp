// SPDX-License-Identifier: Apache-2.0
#include "core/file.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

namespace finetune::core::file_test {
namespace {

std::string refusal(const std::filesystem::path& path) {
  try {
    File(path, File::Mode::read);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::input);
    return error.what();
  }
  return "";
}

TEST(File, OnlyFilesAreRead) {
  std::string folder = (std::filesystem::temp_directory_path() / "finetune_XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string pipe = folder + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  // Nobody writes to the pipe: opening it as a file would wait for ever.
  EXPECT_EQ(refusal(pipe), pipe +
                               ": is not a file (folders, pipes and devices are not read). Name "
                               "the file itself.");
  EXPECT_NE(refusal(folder).find("is not a file"), std::string::npos);
  EXPECT_NE(refusal("/dev/zero").find("is not a file"), std::string::npos);
  write_text_atomically(folder + "/text", "abc");
  EXPECT_EQ(read_text(folder + "/text", 3), "abc");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace finetune::core::file_test
