// SPDX-License-Identifier: Apache-2.0
#include "data/text/detail/split_files.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <system_error>

#include "core/error.hpp"
#include "core/text.hpp"

namespace finetune::data {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view validation_split = "validation";

/// Source: the words for splits of the library huggingface/datasets, data_files.py.
constexpr std::array<std::pair<std::string_view, std::string_view>, 10> words_for_splits = {
    {{"train", "train"},
     {"training", "train"},
     {"validation", validation_split},
     {"valid", validation_split},
     {"val", validation_split},
     {"dev", validation_split},
     {"test", "test"},
     {"testing", "test"},
     {"eval", "test"},
     {"evaluation", "test"}}};

/// Files next to data that hold none; the same library skips them.
constexpr std::array<std::string_view, 4> descriptions = {
    "config.json", "dataset_info.json", "dataset_infos.json", "dataset_dict.json"};

struct NamedFile {
  fs::path path;
  std::string name;   ///< from the folder of the deck on
  std::string split;  ///< see split_named
};

std::string_view split_of_word(std::string_view word) {
  const auto found = std::ranges::find(words_for_splits, word,
                                       &std::pair<std::string_view, std::string_view>::first);
  return found == words_for_splits.end() ? std::string_view() : found->second;
}

std::string canonical(const std::string& split) {
  const std::string_view known = split_of_word(split);
  return known.empty() ? split : std::string(known);
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

bool are_digits(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

/// "train_sft" of "train_sft-00000-of-00003.parquet".
std::string split_of_shard(std::string_view name) {
  constexpr std::string_view of = "-of-";
  constexpr std::size_t digits = 5;
  const std::size_t at = name.find(of);
  if (at == std::string_view::npos || at < digits + 2 || name[at - digits - 1] != '-') return "";
  const std::string_view behind = name.substr(at + of.size());
  if (behind.size() < digits || !are_digits(behind.substr(0, digits)) ||
      !are_digits(name.substr(at - digits, digits)))
    return "";
  return canonical(std::string(name.substr(0, at - digits - 1)));
}

bool has_ending(const std::string& name, const std::vector<std::string_view>& endings) {
  return std::ranges::any_of(endings, [&](std::string_view ending) {
    return name.ends_with(ending) && name.size() > ending.size();
  });
}

/// Names in the order of their bytes: that of a folder's entries differs between file systems, and
/// so between ranks.
std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator i(folder, error), end; !error && i != end; i.increment(error))
    names.push_back(i->path().filename().string());
  if (error) {
    core::fail(core::ErrorKind::input, {folder.string(), "the folder cannot be listed",
                                        error.message(), "Check its permissions."});
  }
  std::ranges::sort(names);
  return names;
}

void add_files(const fs::path& folder, const std::string& prefix, const std::string& split,
               const std::vector<std::string_view>& endings, std::vector<NamedFile>& files) {
  for (const std::string& name : names_in(folder)) {
    const bool is_data = has_ending(name, endings) && !name.starts_with('.') &&
                         std::ranges::find(descriptions, name) == descriptions.end();
    std::error_code ignored;
    if (!is_data || !fs::is_regular_file(folder / name, ignored)) continue;
    files.push_back({folder / name, prefix + name, split.empty() ? split_named(name) : split});
  }
}

/// Those in folders that are named as splits.
void add_folders(const fs::path& folder, const std::string& prefix,
                 const std::vector<std::string_view>& endings, std::vector<NamedFile>& files) {
  for (const std::string& name : names_in(folder)) {
    const std::string split = split_named(name);
    std::error_code ignored;
    if (!split.empty() && fs::is_directory(folder / name, ignored))
      add_files(folder / name, prefix + name + "/", split, endings, files);
  }
}

std::vector<NamedFile> files_of(const fs::path& folder,
                                const std::vector<std::string_view>& endings) {
  std::vector<NamedFile> files;
  add_files(folder, "", "", endings, files);
  if (files.empty()) add_folders(folder, "", endings, files);
  std::error_code ignored;
  const fs::path data = folder / "data";
  if (!files.empty() || !fs::is_directory(data, ignored)) return files;
  add_files(data, "data/", "", endings, files);
  if (files.empty()) add_folders(data, "data/", endings, files);
  return files;
}

/// "a.jsonl (train), b.jsonl (no split)", of a long list the beginning.
std::string listed(const std::vector<NamedFile>& files) {
  constexpr std::size_t most = 12;
  std::string text;
  for (std::size_t i = 0; i < std::min(most, files.size()); ++i) {
    text += fmt::format("{}{} ({})", i == 0 ? "" : ", ", core::one_line(files[i].name),
                        files[i].split.empty() ? "no split" : core::one_line(files[i].split));
  }
  if (files.size() > most) text += fmt::format(", ... ({} files)", files.size());
  return text;
}

[[noreturn]] void fail_unclear(const DataPath& where, const std::string& problem,
                               const std::vector<NamedFile>& files) {
  core::fail(core::ErrorKind::input,
             {where.path.string(), problem, "its files are " + listed(files),
              fmt::format("Set {} to a split that is there or to \"all\", or name files in {}.",
                          where.key, where.path_key)});
}

/// The split that is meant, of those there are.
std::string wanted_split(const DataPath& where, const std::set<std::string>& there) {
  const std::string wanted = canonical(where.split);
  if (there.contains(wanted) || where.path_key == "data.path" || wanted != validation_split)
    return wanted;
  std::set<std::string> others = there;
  others.erase("train");
  return others.size() == 1 ? *others.begin() : wanted;
}

}  // namespace

DataPath DataPath::validation(fs::path where, std::string wanted) {
  DataPath made(std::move(where), std::move(wanted));
  made.key = "data.validation_split";
  made.path_key = "data.validation_path";
  return made;
}

std::string split_named(std::string_view name) {
  if (std::string split = split_of_shard(name); !split.empty()) return split;
  const std::string lower = lower_case(name);
  std::set<std::string_view> found;
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c & 0x80) != 0; };
  for (std::size_t begin = 0; begin < lower.size();) {
    std::size_t end = begin;
    while (end < lower.size() && is_letter(lower[end]))
      ++end;
    const auto split = split_of_word(std::string_view(lower).substr(begin, end - begin));
    if (!split.empty()) found.insert(split);
    begin = end + 1;
  }
  return fmt::format("{}", fmt::join(found, " or "));
}

bool has_files(const fs::path& folder, const std::vector<std::string_view>& endings) {
  return !files_of(folder, endings).empty();
}

SplitFiles choose_split(const DataPath& where, const std::vector<std::string_view>& endings) {
  const std::vector<NamedFile> files = files_of(where.path, endings);
  if (files.empty()) {
    core::fail(
        core::ErrorKind::input,
        {where.path.string(), fmt::format("the folder has no {} file", fmt::join(endings, " or ")),
         where.path_key == "data.path" ? "there is nothing to train on"
                                       : "there is nothing to validate on",
         fmt::format("Check {} and data.format.", where.path_key)});
  }
  std::set<std::string> there;
  for (const NamedFile& file : files) {
    if (!file.split.empty()) there.insert(file.split);
  }
  SplitFiles result;
  const std::string wanted = wanted_split(where, there);
  const bool takes_all =
      wanted == all_splits || (there.empty() && (wanted == "train" || wanted == validation_split));
  const auto is_unclear = [&](const NamedFile& file) {
    return file.split.empty() || file.split.find(" or ") != std::string::npos;
  };
  if (!takes_all && !there.contains(wanted)) {
    const std::string here =
        wanted == where.split ? "" : fmt::format(", as \"{}\" is called here", where.split);
    fail_unclear(where, fmt::format("none of its files is of the split \"{}\"{}", wanted, here),
                 files);
  }
  if (!takes_all && std::ranges::any_of(files, is_unclear))
    fail_unclear(where, "it is not clear to which split each of its files belongs", files);
  if (!takes_all) result.split = wanted;
  for (const NamedFile& file : files) {
    if (takes_all || file.split == wanted) {
      result.chosen.push_back(file.path);
    } else {
      result.others[file.split].push_back(file.name);
    }
  }
  return result;
}

}  // namespace finetune::data
