// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/detail/model_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/error.hpp"

namespace finetune::tokenizer {

namespace fs = std::filesystem;

fs::path find_tokenizer(const fs::path& model_folder) {
  for (const char* name : {"tokenizer.json", "tekken.json"})
    if (fs::exists(model_folder / name)) return model_folder / name;
  std::vector<std::string> ranks;
  std::vector<std::string> versions;
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(model_folder, failed)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".tiktoken")) ranks.push_back(name);
    if (name.starts_with("tokenizer.model.v")) versions.push_back(name);
  }
  if (ranks.size() > 1) {
    core::fail(core::ErrorKind::input,
               {model_folder.string(), fmt::format("{} files *.tiktoken", ranks.size()),
                "it is not clear which one is the model's", "Leave one of them there."});
  }
  if (!ranks.empty()) return model_folder / ranks[0];
  if (fs::exists(model_folder / "tokenizer.model")) return model_folder / "tokenizer.model";
  if (!versions.empty()) return model_folder / *std::max_element(versions.begin(), versions.end());
  core::fail(core::ErrorKind::input,
             {(model_folder / "tokenizer.json").string(), "no such file",
              "no tekken.json, *.tiktoken, tokenizer.model or tokenizer.model.v* is there either",
              "Copy the tokenizer's file from where the model was published."});
}

}  // namespace finetune::tokenizer
