// SPDX-License-Identifier: Apache-2.0
#include "core/file.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "support/errors.hpp"
#include "support/files.hpp"

namespace finetune::core::file_test {
namespace {

std::string refusal(const std::filesystem::path& path) {
  return tests::refusal_of(ErrorKind::input, [&] { File(path, File::Mode::read); });
}

TEST(File, OnlyFilesAreRead) {
  const tests::TemporaryFolder own;
  const std::string folder = own.path().string(), pipe = folder + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  // Nobody writes to the pipe: opening it as a file would wait for ever.
  EXPECT_EQ(refusal(pipe), pipe +
                               ": is not a file (folders, pipes and devices are not read). Name "
                               "the file itself.");
  EXPECT_NE(refusal(folder).find("is not a file"), std::string::npos);
  EXPECT_NE(refusal("/dev/zero").find("is not a file"), std::string::npos);
  write_text_atomically(folder + "/text", "abc");
  EXPECT_EQ(read_text(folder + "/text", 3), "abc");
}

}  // namespace
}  // namespace finetune::core::file_test
