// SPDX-License-Identifier: Apache-2.0
#include "data/tokens/detail/spool.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <system_error>

#include "core/host.hpp"

namespace finetune::data {

core::File nameless_file(const std::filesystem::path& folder) {
  static int count = 0;
  const auto path = folder / fmt::format(".spool-{}-{}-{}", core::host_name(), ::getpid(), count++);
  core::File file(path, core::File::Mode::create_new, core::ErrorKind::create);
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
  return file;
}

}  // namespace finetune::data
