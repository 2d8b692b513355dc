// SPDX-License-Identifier: Apache-2.0
#include "data/text/detail/card.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <system_error>

#include "core/error.hpp"
#include "core/file.hpp"
#include "core/text.hpp"
#include "yaml/node.hpp"

namespace finetune::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* remedy =
    "Correct it, or name files in data.path, for example \"data/*.jsonl\".";

[[noreturn]] void refuse(const fs::path& card, std::int64_t line, const std::string& problem,
                         const std::string& why) {
  core::fail(core::ErrorKind::input,
             {fmt::format("{}:{}", card.string(), line), problem, why, remedy});
}

/// The lines between the first two ---, behind an empty one, so that their numbers stay.
std::optional<std::string> front_matter(const fs::path& card) {
  std::error_code ignored;
  if (!fs::is_regular_file(card, ignored)) return std::nullopt;
  constexpr std::int64_t most_bytes = std::int64_t{1} << 20;
  const core::File file(card, core::File::Mode::read);
  std::string text(static_cast<std::size_t>(std::min(file.size_bytes(), most_bytes)), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);
  std::erase(text, '\r');
  if (!text.starts_with("---\n")) return std::nullopt;
  const std::size_t end = text.find("\n---", 3);
  if (end == std::string::npos) return std::nullopt;
  return "\n" + text.substr(4, end - 3);
}

std::string text_of(const fs::path& card, const yaml::Node& node, const char* what) {
  if (!node.is_text() || node.text.empty())
    refuse(card, node.line, fmt::format("{} is {}", what, node.shown()), "a text is expected");
  return node.text;
}

/// A pattern, or a list of them.
std::vector<std::string> patterns_of(const fs::path& card, const yaml::Node& node) {
  std::vector<std::string> patterns;
  for (const yaml::Node& each : node.is_list() ? node.items : std::vector<yaml::Node>{node}) {
    patterns.push_back(text_of(card, each, "a file of data_files"));
    if (patterns.back().find("://") != std::string::npos)
      refuse(card, each.line,
             fmt::format("\"{}\" is no file here", core::one_line(patterns.back())),
             "nothing is fetched while a run starts");
  }
  return patterns;
}

std::vector<CardSplit> splits_of(const fs::path& card, const yaml::Node& files) {
  std::vector<CardSplit> splits;
  const bool are_named = files.is_list() && !files.items.empty() && files.items.front().is_map();
  if (files.is_map())
    for (const auto& [name, patterns] : files.entries)
      splits.push_back({name, patterns_of(card, patterns)});
  else if (!are_named)
    splits.push_back({"train", patterns_of(card, files)});
  if (!are_named) return splits;
  for (const yaml::Node& each : files.items) {
    const yaml::Node* split = each.find("split");
    const yaml::Node* path = each.find("path");
    if (split == nullptr || path == nullptr)
      refuse(card, each.line, fmt::format("{} names no split or no path", each.shown()),
             "data_files has a split and a path each");
    splits.push_back({text_of(card, *split, "split"), patterns_of(card, *path)});
  }
  return splits;
}

CardSubset subset_of(const fs::path& card, const yaml::Node& config) {
  const yaml::Node* name = config.find("config_name");
  if (name == nullptr)
    refuse(card, config.line, fmt::format("{} has no config_name", config.shown()),
           "each of configs is called something");
  CardSubset subset{.name = text_of(card, *name, "config_name"), .folder = "", .splits = {}};
  if (const yaml::Node* chosen = config.find("default"))
    subset.is_default = chosen->boolean().value_or(false);
  if (const yaml::Node* folder = config.find("data_dir"))
    subset.folder = text_of(card, *folder, "data_dir");
  if (const yaml::Node* files = config.find("data_files")) subset.splits = splits_of(card, *files);
  for (CardSplit& split : subset.splits)
    for (std::string& pattern : split.patterns)
      if (!subset.folder.empty()) pattern = subset.folder + "/" + pattern;
  return subset;
}

}  // namespace

std::vector<CardSubset> read_card(const fs::path& folder) {
  const fs::path card = folder / "README.md";
  const auto text = front_matter(card);
  // A README of anything may begin with lines between ---; what lists no files is not looked at.
  if (!text || text->find("\nconfigs:") == std::string::npos) return {};
  yaml::Node root;
  try {
    root = yaml::read(*text, card.string());
  } catch (const core::Error& error) {
    const std::string what = error.what();
    core::fail(core::ErrorKind::input, {card.string(), "what it says of its files cannot be read",
                                        core::one_line(what.substr(0, what.find(" ("))), remedy});
  }
  const yaml::Node* configs = root.find("configs");
  if (configs == nullptr || configs->is_empty()) return {};
  if (!configs->is_list())
    refuse(card, configs->line, fmt::format("configs is {}", configs->shown()),
           "a list of data sets is expected");
  std::vector<CardSubset> subsets;
  for (const yaml::Node& config : configs->items)
    subsets.push_back(subset_of(card, config));
  return subsets;
}

}  // namespace finetune::data
