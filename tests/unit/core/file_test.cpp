// SPDX-License-Identifier: Apache-2.0
#include "core/file.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <vector>

#include "core/host.hpp"
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

/// Whoever is told to free space on a disk that has enough looks in the wrong place.
TEST(File, BeyondTheLimitOnSizesTellsOfTheLimit) {
  const tests::TemporaryFolder own;
  const std::string path = own.path().string() + "/large";
  std::signal(SIGXFSZ, SIG_DFL);
  survive_file_size_limit();
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const File file(path, File::Mode::create_new);
  const rlimit tight = {1000, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &tight), 0);
  const std::vector<std::byte> bytes(2000);
  const std::string written =
      tests::refusal_of(ErrorKind::io, [&] { file.write_at(0, std::span(bytes)); });
  const std::string grown = tests::refusal_of(ErrorKind::io, [&] { file.cut(2000); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, SIG_DFL);
  const std::string rest =
      " (File too large). Raise the limit on the size of a file (ulimit -f), or write to a file "
      "system that holds larger ones.";
  EXPECT_EQ(written, path + ": cannot be written" + rest);
  EXPECT_EQ(grown, path + ": cannot be cut" + rest);
}

}  // namespace
}  // namespace finetune::core::file_test
