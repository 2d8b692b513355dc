#pragma once
// SPDX-License-Identifier: Apache-2.0
// Folders of tensors in FP8 for tests, made from dense ones by their definition.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/fp8_export.hpp"
#include "model/parameter_table.hpp"
#include "weights/export_folder.hpp"
#include "weights/model_files.hpp"

namespace finetune::tests {

/// Writes `table`, whose rows that are packed as fp8 become so, from `files`. Other names of scales
/// than compressed-tensors': `suffix` in the place of "_scale".
inline void write_fp8(const weights::ModelFiles& files, const model::ParameterTable& table,
                      base::Fp8Scales scales, const std::filesystem::path& folder,
                      const std::string& suffix = "_scale") {
  base::Fp8Export packed(files, table, scales);
  weights::ExportPlan plan;
  std::map<std::string, std::string, std::less<>> original;
  for (weights::TensorSpec tensor : packed.tensors()) {
    const std::string name = tensor.name;
    if (name.ends_with("_scale")) tensor.name.replace(name.size() - 6, 6, suffix);
    original[tensor.name] = name;
    plan.tensors.push_back(tensor);
  }
  weights::export_bytes(
      folder, plan,
      [&](std::string_view name, std::int64_t first, std::span<std::byte> target) {
        packed.read(original.find(name)->second, first, target);
      },
      {});
}

}  // namespace finetune::tests
