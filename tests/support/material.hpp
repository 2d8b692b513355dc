#pragma once
// SPDX-License-Identifier: Apache-2.0
// Real models, tokenizers and data for trials. Not part of the project: tests skip where it is
// absent.

#include <cstdlib>
#include <filesystem>
#include <string>

#include "support/folders.hpp"

namespace finetune::tests {

/// A file or folder of the material: $FINETUNE_MATERIAL, or shared/material beside the source
/// folder.
inline std::filesystem::path material(const std::string& name) {
  const char* folder = std::getenv("FINETUNE_MATERIAL");
  const std::filesystem::path root =
      folder != nullptr ? folder : source_folder() / "../shared/material";
  return root / name;
}

}  // namespace finetune::tests

/// Skips the test, with the reason, unless the material has `path`.
#define REQUIRE_MATERIAL(path)        \
  if (!std::filesystem::exists(path)) \
  GTEST_SKIP() << path << " is not there; set FINETUNE_MATERIAL to try real models"
