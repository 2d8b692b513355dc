// SPDX-License-Identifier: Apache-2.0
#include "core/installation.hpp"

#include <string>
#include <system_error>

#include "core/error.hpp"

namespace finetune::core {

namespace fs = std::filesystem;

fs::path shipped(const fs::path& relative, const fs::path& folder_of_binary) {
  // prefix/bin and prefix/share/finetune; or build in the source tree.
  const fs::path above = folder_of_binary.parent_path();
  const fs::path installed = above / "share/finetune" / relative;
  const fs::path in_sources = above / relative;
  std::error_code ignored;
  if (fs::exists(installed, ignored)) return installed;
  if (fs::exists(in_sources, ignored)) return in_sources;
  fail(
      ErrorKind::environment,
      {relative.string(), "it comes with the program and is not there",
       "neither " + installed.string() + " nor " + in_sources.string() + " exists",
       "Install the program again with cmake --install, or keep its build folder in the sources."});
}

fs::path shipped(const fs::path& relative) {
  std::error_code error;
  const fs::path binary = fs::read_symlink("/proc/self/exe", error);
  return shipped(relative, binary.parent_path());
}

}  // namespace finetune::core
