// SPDX-License-Identifier: Apache-2.0
#include "data/text/detail/split_files.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <system_error>

#include "core/error.hpp"
#include "core/text.hpp"
#include "data/records/records.hpp"
#include "data/text/detail/card.hpp"
#include "data/text/detail/descriptions.hpp"
#include "data/text/detail/shard_names.hpp"
#include "data/text/listing.hpp"

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

std::string split_of_shard(std::string_view name) {
  // As datasets' save_to_disk calls all its files; folders have the names of splits there.
  if (name.starts_with("data-") && name.ends_with(".arrow")) return "";
  const auto shard = shard_named(name);
  return shard ? canonical(std::string(shard->of)) : "";
}

bool has_ending(const std::string& name, const std::vector<std::string_view>& endings) {
  return std::ranges::any_of(endings, [&](std::string_view ending) {
    return name.ends_with(ending) && name.size() > ending.size();
  });
}

/// The split of a file by its own name, else by that of the folder nearest to it.
std::string split_of_file(const fs::path& name) {
  std::vector<fs::path> parts(name.begin(), name.end());
  for (auto part = parts.rbegin(); part != parts.rend(); ++part)
    if (std::string split = split_named(part->string()); !split.empty()) return split;
  return "";
}

std::vector<NamedFile> files_in(const fs::path& folder,
                                const std::vector<std::string_view>& endings) {
  std::vector<NamedFile> files;
  const std::vector<std::string> names = files_below(folder);
  for (const std::string& name : names)
    if (has_ending(fs::path(name).filename().string(), endings) && !is_no_data(name, names))
      files.push_back({folder / name, name, split_of_file(name)});
  const auto lies_beside = [](const NamedFile& file) {
    return file.name.find('/') == std::string::npos;
  };
  const auto is_in_data = [](const NamedFile& file) { return file.name.starts_with("data/"); };
  // As on the Hub, where other folders hold what belongs to the data.
  if (std::ranges::none_of(files, lies_beside) && std::ranges::any_of(files, is_in_data))
    std::erase_if(files, [&](const NamedFile& file) { return !is_in_data(file); });
  return files;
}

const CardSubset* chosen_subset(const DataPath& where, const std::vector<CardSubset>& subsets) {
  std::vector<std::string> names;
  for (const CardSubset& subset : subsets)
    names.push_back(subset.name);
  const auto fail = [&](const std::string& problem, const std::string& remedy) {
    core::fail(core::ErrorKind::input,
               {where.path.string(), problem,
                names.empty() ? "its README.md lists none"
                              : fmt::format("its README.md lists {}", fmt::join(names, ", ")),
                remedy});
  };
  if (!where.subset.empty()) {
    const auto found = std::ranges::find(subsets, where.subset, &CardSubset::name);
    if (found != subsets.end()) return &*found;
    const auto meant = core::nearest(where.subset, names);
    fail(fmt::format("there is no data set \"{}\" in it", core::one_line(where.subset)),
         meant ? fmt::format("Did you mean data.subset = \"{}\"?", *meant)
               : "Correct or remove data.subset.");
  }
  if (subsets.empty()) return nullptr;
  if (subsets.size() == 1) return &subsets.front();
  for (const CardSubset& subset : subsets)
    if (subset.is_default) return &subset;
  const auto usual = std::ranges::find(subsets, "default", &CardSubset::name);
  if (usual == subsets.end())
    fail("it holds several data sets",
         fmt::format("Set data.subset, for example to \"{}\".", names.front()));
  return &*usual;
}

std::vector<NamedFile> files_of(const DataPath& where,
                                const std::vector<std::string_view>& endings) {
  const std::vector<CardSubset> subsets = read_card(where.path);
  const CardSubset* subset = chosen_subset(where, subsets);
  if (subset == nullptr) return files_in(where.path, endings);
  if (subset->splits.empty()) return files_in(where.path / subset->folder, endings);
  std::vector<NamedFile> files;
  for (const CardSplit& split : subset->splits)
    for (const std::string& pattern : split.patterns)
      for (const fs::path& file : matching_files(where.path, pattern))
        if (has_ending(file.filename().string(), endings))
          files.push_back(
              {file, file.lexically_relative(where.path).string(), canonical(split.name)});
  return files;
}

/// Where README.md says which files there are, and none of them is here.
void require_files_of_card(const DataPath& where) {
  if (is_pattern(where.path)) return;
  const std::vector<CardSubset> subsets = read_card(where.path);
  const CardSubset* subset = chosen_subset(where, subsets);
  if (subset == nullptr || subset->splits.empty()) return;
  std::vector<std::string> patterns;
  for (const CardSplit& split : subset->splits)
    for (const std::string& pattern : split.patterns)
      patterns.push_back(core::one_line(pattern));
  core::fail(core::ErrorKind::input,
             {where.path.string(), "has none of the files that its README.md names",
              fmt::format("data_files are {}", fmt::join(patterns, ", ")),
              fmt::format("Copy them, too, or name other files in {}, for example \"{}\".",
                          where.path_key, (where.path / "*.jsonl").string())});
}

std::string listed_names(const std::vector<NamedFile>& files) {
  constexpr std::size_t most = 6;
  std::string text;
  for (std::size_t i = 0; i < std::min(most, files.size()); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : ", ", core::one_line(files[i].name));
  return files.size() > most ? text + ", ..." : text;
}

std::vector<NamedFile> files_of_pattern(const DataPath& where) {
  std::vector<NamedFile> files;
  for (const fs::path& file : matching_files(where.path))
    files.push_back({file, file.string(), ""});
  if (!files.empty()) return files;
  const fs::path folder = folder_of_pattern(where.path);
  std::error_code ignored;
  std::vector<NamedFile> there;
  if (fs::is_directory(folder, ignored))
    for (const std::string& name : files_below(folder))
      there.push_back({folder / name, name, ""});
  core::fail(core::ErrorKind::input,
             {where.path.string(), "matches no file",
              there.empty() ? fmt::format("there is no file in {}", folder.string())
                            : fmt::format("in {} are {}", folder.string(), listed_names(there)),
              fmt::format("Correct {}.", where.path_key)});
}

/// What a file is read as.
std::string_view kind_of(const fs::path& file) {
  const std::string_view ending = record_ending(file);
  if (ending.starts_with(".json")) return "JSON";
  if (ending.starts_with(".csv")) return "CSV";
  if (ending.starts_with(".tsv")) return "TSV";
  if (ending.starts_with(".tar")) return "tar";
  if (ending.starts_with(".mds")) return "MDS";
  if (ending == ".arrow" || ending == ".feather") return "Arrow";
  if (ending == ".idx") return "Megatron-LM";
  return ending.empty() ? "plain text" : "Parquet";
}

/// Two forms of the same data often lie side by side.
void require_one_kind(const DataPath& where, const std::vector<fs::path>& files) {
  for (const fs::path& file : files) {
    if (kind_of(file) == kind_of(files.front())) continue;
    core::fail(
        core::ErrorKind::input,
        {where.path.string(), "holds data of several kinds",
         fmt::format("{} is {}, {} is {}", files.front().string(), kind_of(files.front()),
                     file.string(), kind_of(file)),
         fmt::format(
             "Name those that are meant in {}, for example \"{}\".", where.path_key,
             (folder_of_pattern(where.path) / ("**/*" + file.extension().string())).string())});
  }
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

bool is_several(const DataPath& where) {
  std::error_code ignored;
  return fs::is_directory(where.path, ignored) || is_pattern(where.path);
}

bool has_files(const DataPath& where, const std::vector<std::string_view>& endings) {
  return !files_of(where, endings).empty();
}

void require_distinct(const std::vector<fs::path>& files, const std::string& remedy) {
  std::map<fs::path, fs::path> seen;
  for (const fs::path& file : files) {
    std::error_code error;
    const fs::path real = fs::canonical(file, error);
    if (error) continue;  // whoever opens it will say so
    const auto [before, is_new] = seen.emplace(real, file);
    if (is_new) continue;
    const bool is_same_name = before->second == file;
    core::fail(core::ErrorKind::input,
               {file.string(), "would be read twice",
                is_same_name ? "it is named twice"
                             : fmt::format("it is the same file as {}", before->second.string()),
                remedy});
  }
}

SplitFiles choose_split(const DataPath& where, const std::vector<std::string_view>& endings) {
  const bool names_files = is_pattern(where.path);
  const std::vector<NamedFile> files =
      names_files ? files_of_pattern(where) : files_of(where, endings);
  if (files.empty()) {
    std::vector<std::string_view> plain = endings;
    std::erase_if(plain, [](std::string_view ending) {
      return ending.ends_with(".gz") || ending.ends_with(".zst") || ending.ends_with(".zstd");
    });
    require_files_of_card(where);
    core::fail(
        core::ErrorKind::input,
        {where.path.string(), fmt::format("the folder has no {} file", fmt::join(plain, " or ")),
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
  const bool takes_all = names_files || wanted == all_splits ||
                         (there.empty() && (wanted == "train" || wanted == validation_split));
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
  if (!names_files) {
    std::vector<std::string> names;
    for (const NamedFile& file : files)
      if (takes_all || file.split == wanted) names.push_back(file.name);
    require_all_shards(where.path, names, where.path_key);
  }
  require_one_kind(where, result.chosen);
  require_distinct(result.chosen, "Remove one, or name files in " + where.path_key + ".");
  return result;
}

}  // namespace finetune::data
