// SPDX-License-Identifier: Apache-2.0
#include "data/text/detail/descriptions.hpp"

#include <algorithm>
#include <array>
#include <string_view>

namespace finetune::data {
namespace {

/// The library huggingface/datasets skips the same.
constexpr std::array<std::string_view, 4> descriptions = {
    "config.json", "dataset_info.json", "dataset_infos.json", "dataset_dict.json"};

/// Whether one of `names` lies in `folder` ("a/b/") and has `part` in its own name.
bool lies_beside(std::string_view folder, std::string_view part,
                 const std::vector<std::string>& names) {
  return std::ranges::any_of(names, [&](std::string_view name) {
    if (!name.starts_with(folder)) return false;
    const std::string_view own = name.substr(folder.size());
    return own.find('/') == own.npos && own.find(part) != own.npos;
  });
}

}  // namespace

bool is_no_data(const std::string& name, const std::vector<std::string>& names) {
  const std::string_view folder = std::string_view(name).substr(0, name.rfind('/') + 1);
  const std::string_view own = std::string_view(name).substr(folder.size());
  if (std::ranges::find(descriptions, own) != descriptions.end()) return true;
  if (own == "state.json") return lies_beside(folder, ".arrow", names);
  if (own == "index.json") return lies_beside(folder, ".mds", names);
  if (own.starts_with("cache-") && own.ends_with(".arrow")) return true;
  const std::size_t packed = name.rfind(".mds.");
  return packed != name.npos && std::ranges::binary_search(names, name.substr(0, packed + 4));
}

}  // namespace finetune::data
