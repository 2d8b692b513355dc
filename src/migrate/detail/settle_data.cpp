// SPDX-License-Identifier: Apache-2.0
// data.path and what is known of the data sets.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "deck/value.hpp"
#include "migrate/detail/settle.hpp"

namespace finetune::migrate {
namespace {

/// A value that a key has once, of all data sets.
void set_common(Draft& draft, const std::string& key, const std::vector<std::string>& values,
                const std::string& what) {
  const auto differs = [&](const std::string& value) { return value != values.front(); };
  if (std::ranges::any_of(values, differs)) {
    draft.stop({}, fmt::format("the data sets have different {}", what),
               fmt::format("{} is one for all", key), key + "=...");
    return;
  }
  if (!values.empty() && !values.front().empty())
    draft.set(key, deck::to_toml(values.front()), "of the data sets");
}

/// The columns that formats read where a deck names none.
struct UsualColumn {
  std::string_view format, key, name;
};
constexpr auto usual_columns = std::to_array<UsualColumn>({
    {"alpaca", "data.prompt_column", "instruction"},
    {"alpaca", "data.input_column", "input"},
    {"alpaca", "data.answer_column", "output"},
    {"alpaca", "data.system_column", "system"},
    {"alpaca", "data.columns.history", "history"},
    {"completion", "data.prompt_column", "prompt"},
    {"completion", "data.answer_column", "completion"},
    {"completion", "data.system_column", "system"},
    {"chat", "data.conversation_column", "messages"},
    {"chat", "data.conversation_column", "conversations"},
    {"chat", "data.conversation_column", "conversation"},
    {"chat", "data.system_column", "system"},
    {"chat", "data.tools_column", "tools"},
    {"chat", "data.message_fields.role", "role"},
    {"chat", "data.message_fields.content", "content"},
    {"text", "data.text_column", "text"},
});

/// The first of those of `key`; "": the format reads none.
std::string_view usual_column(const std::string& format, const std::string& key) {
  const auto found = std::ranges::find_if(usual_columns, [&](const UsualColumn& each) {
    return each.format == format && each.key == key;
  });
  return found == usual_columns.end() ? "" : found->name;
}

bool is_usual(const std::string& format, const std::string& key, const std::string& column) {
  return std::ranges::any_of(usual_columns, [&](const UsualColumn& each) {
    return each.format == format && each.key == key && each.name == column;
  });
}

/// A column of all data sets that have one.
void set_column(Draft& draft, const std::string& key, const std::vector<DataSet>& sets) {
  std::vector<std::string> values;
  bool all_named = true, all_usual = true;
  for (const DataSet& set : sets) {
    const auto found = set.columns.find(key);
    const bool is_written = set.columns.contains("data.prompt_template");
    const std::string_view usual = is_written ? "" : usual_column(set.format, key);
    const bool would_read = key == "data.prompt_template" && set.format != "chat" &&
                            set.format != "text" && set.format != "tokens";
    if (found != set.columns.end()) {
      values.push_back(found->second);
      all_usual = all_usual && is_usual(set.format, key, found->second);
    } else if (would_read || !usual.empty()) {
      // Formats that do not read the column do not mind what it is called.
      values.emplace_back(usual);
      all_named = false;
    }
  }
  // Each is found by itself, while one that a deck names has to be in all of them.
  if (all_usual && !all_named) return;
  set_common(draft, key, values, "columns");
}

void set_columns(Draft& draft) {
  std::vector<DataSet> sets = draft.data();
  sets.insert(sets.end(), draft.validation().begin(), draft.validation().end());
  std::vector<std::string> keys;
  for (const DataSet& set : sets) {
    for (const auto& [key, column] : set.columns)
      if (std::ranges::find(keys, key) == keys.end()) keys.push_back(key);
  }
  for (const std::string& key : keys)
    set_column(draft, key, sets);
}

/// One for all, or one for each of data.path and so of data.validation_path; otherwise each file
/// tells its own.
void set_formats(Draft& draft) {
  std::vector<std::string> formats, of_validation;
  for (const DataSet& set : draft.data())
    formats.push_back(set.format);
  if (formats.empty()) return;
  for (const DataSet& set : draft.validation())
    of_validation.push_back(set.format);
  const auto is_first = [&](const std::string& format) { return format == formats.front(); };
  const auto is_open = [](const std::string& format) { return format == "auto"; };
  const bool is_one =
      std::ranges::all_of(formats, is_first) &&
      std::ranges::all_of(of_validation, [&](const auto& f) { return is_first(f) || is_open(f); });
  if (is_one)
    draft.set("data.format", deck::to_toml(std::vector{formats.front()}));
  else if (of_validation.empty() || of_validation == formats)
    draft.set("data.format", deck::to_toml(formats));
  else
    draft.set("data.format", R"("auto")", "data.path and data.validation_path have different ones");
}

bool is_on_the_hub(const std::string& path) {
  return std::ranges::count(path, '/') == 1 && path.front() != '/' && path.front() != '.' &&
         std::ranges::none_of(std::to_array({".json", ".csv", ".tsv", ".parquet", "*"}),
                              [&](const char* part) { return path.find(part) != path.npos; });
}

void set_subsets(Draft& draft, const std::vector<DataSet>& data) {
  std::vector<std::string> names;
  for (const DataSet& set : data)
    if (std::ranges::find(names, set.subset) == names.end()) names.push_back(set.subset);
  if (names.size() == 1 && !names.front().empty())
    draft.set("data.subset", deck::to_toml(names.front()), "of the data sets");
  for (const DataSet& set : data)
    if (names.size() > 1 && !set.subset.empty())
      draft.note(Kind::differs, fmt::format("{}: {}", set.path, set.subset),
                 "data.subset is one for all: name the files of that part in data.path");
}

void set_splits(Draft& draft, const std::vector<DataSet>& data) {
  std::vector<std::string> names;
  std::vector<double> weights;
  bool is_weighted = false;
  for (const DataSet& set : data) {
    const Split split = parse_split(set.split);
    if (!split.is_understood)
      draft.note(Kind::differs, "split = " + set.split,
                 "data sets are read whole, or data.weights of each per epoch");
    names.push_back(split.name == "train" ? "" : split.name);
    weights.push_back(split.part * set.weight);
    is_weighted = is_weighted || weights.back() != 1;
  }
  set_common(draft, "data.split", names, "splits");
  if (!is_weighted) return;
  draft.set("data.weights", deck::to_toml(weights), "parts of the data sets");
  if (draft.number("epochs").value_or(1) > 1)
    draft.note(Kind::differs, "parts of data sets",
               "data.weights takes another part of them in each epoch");
}

}  // namespace

Split parse_split(const std::string& text) {
  Split split;
  const std::size_t bracket = std::min(text.find('['), text.size());
  split.name = text.substr(0, bracket);
  if (bracket == text.size()) return split;
  split.is_understood = false;
  const std::string range = text.substr(bracket);
  if (!range.starts_with("[:") || !range.ends_with("%]")) return split;
  char* end = nullptr;
  const double percent = std::strtod(range.c_str() + 2, &end);
  if (std::string_view(end) != "%]" || !(percent > 0) || percent > 100) return split;
  split.part = percent / 100;
  split.is_understood = true;
  return split;
}

void settle_data(Draft& draft) {
  const auto& data = draft.data();
  if (data.empty() && !draft.has("data.path")) {
    draft.stop({}, "it names no training data", "there is nothing to train on", "data.path=FILE");
    return;
  }
  const auto set_paths = [&](const std::string& key, const std::vector<DataSet>& sets) {
    std::vector<std::string> paths;
    for (const DataSet& set : sets)
      paths.push_back(set.path);
    if (!paths.empty()) draft.set(key, deck::to_toml(paths));
  };
  set_paths("data.path", data);
  set_paths("data.validation_path", draft.validation());
  for (const DataSet& set : data) {
    if (!is_on_the_hub(set.path)) continue;
    draft.say(fmt::format("data.path is files: hf download {} --repo-type dataset --local-dir {}",
                          set.path, set.path));
  }
  set_formats(draft);
  set_columns(draft);
  set_splits(draft, data);
  set_subsets(draft, data);
}

}  // namespace finetune::migrate
