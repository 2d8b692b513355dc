// SPDX-License-Identifier: Apache-2.0
// Keys by their rows.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "deck/value.hpp"
#include "migrate/detail/source.hpp"
#include "migrate/detail/words.hpp"

namespace finetune::migrate {
namespace {

constexpr auto in_order =
    std::to_array<const Source*>({&torchtune, &litgpt, &axolotl, &llama_factory, &deepspeed, &trl});

const Row* row_in(std::span<const Row> rows, std::string_view name) {
  const auto found = std::ranges::find(rows, name, &Row::name);
  return found == rows.end() ? nullptr : &*found;
}

/// The row of `name`, or of the nearest key above it.
const Row* row_of(const Source& source, std::string_view name) {
  for (;;) {
    const Row* row = row_in(source.rows, name);
    if (row == nullptr) row = row_in(source.more_rows, name);
    const std::size_t dot = name.rfind('.');
    if (row != nullptr || dot == std::string_view::npos) return row;
    name = name.substr(0, dot);
  }
}

bool has_rows_below(const Source& source, const std::string& name) {
  const auto is_below = [&](const Row& row) {
    return row.name.size() > name.size() && row.name.starts_with(name) &&
           row.name[name.size()] == '.';
  };
  return std::ranges::any_of(source.rows, is_below) ||
         std::ranges::any_of(source.more_rows, is_below);
}

/// As in TOML: numbers and words for yes and no as themselves, lists of texts as arrays.
std::string toml(const Node& node) {
  if (node.is_list()) {
    std::vector<std::string> texts;
    for (const Node& item : node.items)
      texts.push_back(item.text);
    return deck::to_toml(texts);
  }
  if (!node.is_quoted) {
    if (const auto value = node.integer()) return deck::to_toml(*value);
    if (const auto value = node.number()) return deck::to_toml(*value);
    if (node.text == "true" || node.text == "True") return "true";
    if (node.text == "false" || node.text == "False") return "false";
  }
  return deck::to_toml(node.text);
}

void take_word(const Row& row, const Node& node, const std::string& name, Draft& draft) {
  const Word* word = find_word(row.here, node.text);
  const std::string shown = fmt::format("{} = {}", name, node.shown());
  if (word == nullptr) {
    draft.stop(node, shown, fmt::format("there is no {} like it", row.here),
               fmt::format("{}=...", row.here));
    return;
  }
  draft.set(std::string(row.here), deck::to_toml(word->here), shown);
  // Warm-up depends on which of those that are the same here it is.
  if (row.here == "optimizer.schedule") draft.remember("schedule", name, node);
  if (!word->note.empty()) draft.note(Kind::differs, shown, std::string(word->note));
}

void take(const Row& row, const Node& node, const std::string& name, Draft& draft) {
  const std::string shown = fmt::format("{} = {}", name, node.shown());
  switch (row.kind) {
    case Kind::key:
      if (node.text != "auto") draft.set(std::string(row.here), toml(node), name);
      break;
    case Kind::word:
      take_word(row, node, name, draft);
      break;
    case Kind::fact:
      draft.remember(row.here, name, node);
      break;
    case Kind::needless:
      draft.note(Kind::needless, name, std::string(row.note));
      break;
    case Kind::differs:
      draft.note(node.is_off() ? Kind::needless : Kind::differs, shown, std::string(row.note));
      break;
    case Kind::stops:
      if (node.is_off())
        draft.note(Kind::needless, shown, "it is not asked for");
      else
        draft.stop(node, shown, std::string(row.note), std::string(row.here));
  }
}

void walk(const Source& source, const Node& node, const std::string& path,
          const std::string& prefix, Draft& draft) {
  for (const auto& [key, value] : node.entries) {
    const std::string name = path.empty() ? key : fmt::format("{}.{}", path, key);
    const Row* row = row_of(source, name);
    // A map is what its keys are, unless it has a row and they have none.
    const bool is_whole = row != nullptr && row->name == name && !has_rows_below(source, name);
    if (value.is_map() && !value.entries.empty() && !is_whole)
      walk(source, value, name, prefix, draft);
    else if (value.is_empty())
      draft.leave_empty(prefix + name);
    else if (row == nullptr)
      draft.leave_unknown(prefix + name, value);
    else
      take(*row, value, prefix + (row->kind == Kind::needless ? std::string(row->name) : name),
           draft);
  }
}

}  // namespace

std::span<const Source* const> sources() {
  return in_order;
}

bool is_from(const Source& source, const Node& root) {
  return std::ranges::any_of(source.marks,
                             [&](std::string_view mark) { return root.find(mark) != nullptr; });
}

void translate(const Source& source, const Node& root, const std::string& prefix, Draft& draft) {
  walk(source, root, "", prefix, draft);
}

}  // namespace finetune::migrate
