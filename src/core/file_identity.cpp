// SPDX-License-Identifier: Apache-2.0
#include "core/file_identity.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

namespace finetune::core {

std::string file_identity(const std::filesystem::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return {};
  return fmt::format("{} {} {}.{:09} {}.{:09}", status.st_ino, status.st_size,
                     status.st_mtim.tv_sec, status.st_mtim.tv_nsec, status.st_ctim.tv_sec,
                     status.st_ctim.tv_nsec);
}

}  // namespace finetune::core
