// SPDX-License-Identifier: Apache-2.0
#include "model_folders.hpp"

#include <fmt/format.h>

#include <system_error>

#include "core/error.hpp"
#include "data/text/model_template.hpp"

namespace finetune::app {

bool is_run(const std::filesystem::path& folder) {
  std::error_code ignored;
  // No adapter is an empty path, which must not name the current folder.
  return !folder.empty() && std::filesystem::exists(folder / "input.resolved.toml", ignored);
}

std::filesystem::path folder_with_template(const std::filesystem::path& adapter,
                                           const std::string& key) {
  if (adapter.empty()) return {};
  const data::ModelTemplates own = data::model_templates(adapter, key);
  return own.standard || !own.named.empty() ? adapter : std::filesystem::path();
}

std::filesystem::path without_last_slash(const std::filesystem::path& folder) {
  const std::filesystem::path normal = folder.lexically_normal();
  return normal.has_filename() ? normal : normal.parent_path();
}

void require_no_run(const std::filesystem::path& folder) {
  if (!is_run(folder)) return;
  core::fail(core::ErrorKind::input,
             {folder.string(), "is the output of a run, not a model or an adapter",
              "its checkpoints are for restarts",
              fmt::format("Write what is read here: finetune export {} OUT.", folder.string())});
}

}  // namespace finetune::app
