// SPDX-License-Identifier: Apache-2.0
#include "support/folders.hpp"

namespace finetune::tests {

std::filesystem::path source_folder() {
  return FINETUNE_SOURCE_FOLDER;
}

std::filesystem::path build_folder() {
  return FINETUNE_BUILD_FOLDER;
}

}  // namespace finetune::tests
