#pragma once
// SPDX-License-Identifier: Apache-2.0
// A folder that ranks share for as long as a test runs.

#include <stdlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "comm/communicator.hpp"
#include "support/folders.hpp"

namespace finetune::tests {

/// A new folder that all ranks of `ranks` share, removed at the end. Collective on `ranks`.
class SharedFolder {
 public:
  explicit SharedFolder(comm::Communicator ranks = {}) : ranks_(std::move(ranks)) {
    std::string name = (build_folder() / "tests/shared.XXXXXX").string();
    if (ranks_.is_root() && ::mkdtemp(name.data()) == nullptr) std::abort();
    path_ = ranks_.broadcast_text(name);
  }
  ~SharedFolder() {
    ranks_.barrier();
    std::error_code ignored;
    if (ranks_.is_root()) std::filesystem::remove_all(path_, ignored);
  }
  SharedFolder(const SharedFolder&) = delete;
  SharedFolder& operator=(const SharedFolder&) = delete;

  const comm::Communicator& ranks() const { return ranks_; }
  const std::filesystem::path& path() const { return path_; }
  /// Written by the root, seen by all.
  std::filesystem::path write(const std::string& name, std::string_view content) const {
    if (ranks_.is_root()) std::ofstream(path_ / name, std::ios::binary) << content;
    ranks_.barrier();
    return path_ / name;
  }

 private:
  comm::Communicator ranks_;
  std::filesystem::path path_;
};

}  // namespace finetune::tests
