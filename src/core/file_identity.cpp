// SPDX-License-Identifier: Apache-2.0
#include "core/file_identity.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

namespace finetune::core {
namespace {

std::string in_words(const struct stat& status) {
  return fmt::format("{} {} {}.{:09} {}.{:09}", status.st_ino, status.st_size,
                     status.st_mtim.tv_sec, status.st_mtim.tv_nsec, status.st_ctim.tv_sec,
                     status.st_ctim.tv_nsec);
}

}  // namespace

std::string file_identity(const std::filesystem::path& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 ? in_words(status) : "";
}

std::string file_identity(const File& file) {
  struct stat status {};
  return ::fstat(file.descriptor(), &status) == 0 ? in_words(status) : "";
}

}  // namespace finetune::core
