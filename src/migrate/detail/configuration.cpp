// SPDX-License-Identifier: Apache-2.0
// Values that name values.
#include "migrate/detail/configuration.hpp"

namespace finetune::migrate {
namespace {

constexpr int most_passes = 8;  // of values that name values

/// Once through the tree; whether something was replaced.
bool replace_names(Node& node, const Node& root) {
  bool replaced = false;
  for (Node& item : node.items)
    replaced = replace_names(item, root) || replaced;
  for (auto& [key, value] : node.entries)
    replaced = replace_names(value, root) || replaced;
  if (!node.is_text()) return replaced;
  const std::size_t begin = node.text.find("${");
  const std::size_t end = begin == std::string::npos ? begin : node.text.find('}', begin);
  if (end == std::string::npos || node.text.size() > 4096) return replaced;
  const Node* named = root.find(std::string_view(node.text).substr(begin + 2, end - begin - 2));
  if (named == nullptr || named == &node || named->is_list() || named->is_map()) return replaced;
  if (named->text.find("${") != std::string::npos) return replaced;
  node.text = node.text.substr(0, begin) + named->text + node.text.substr(end + 1);
  if (node.text.empty()) node.kind = Node::Kind::nothing;
  return true;
}

}  // namespace

void interpolate(Node& root) {
  for (int pass = 0; pass < most_passes; ++pass) {
    if (!replace_names(root, root)) return;
  }
}

}  // namespace finetune::migrate
