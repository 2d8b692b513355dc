// SPDX-License-Identifier: Apache-2.0
#include "support/folders.hpp"

#include <cstdlib>

namespace finetune::tests {
namespace {

/// Programs that were carried to another machine are told.
std::filesystem::path folder(const char* variable, const char* as_built) {
  const char* told = std::getenv(variable);
  return told != nullptr ? told : as_built;
}

}  // namespace

std::filesystem::path source_folder() {
  return folder("FINETUNE_TEST_SOURCE_FOLDER", FINETUNE_SOURCE_FOLDER);
}

std::filesystem::path build_folder() {
  return folder("FINETUNE_TEST_BUILD_FOLDER", FINETUNE_BUILD_FOLDER);
}

}  // namespace finetune::tests
