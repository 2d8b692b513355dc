// SPDX-License-Identifier: Apache-2.0
#include "data/text/detect_format.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/file.hpp"
#include "core/text.hpp"
#include "data/records/records.hpp"
#include "data/text/columns.hpp"
#include "data/text/conversation.hpp"

namespace finetune::data {
namespace {

namespace fs = std::filesystem;

/// One may lack a field that the others have.
constexpr std::int64_t most_records = 8;

/// The file whose records are looked at; the first of a folder.
fs::path first_file(const DataPath& where) {
  return is_several(where) ? choose_data_files(where).chosen.front() : where.path;
}

constexpr std::array<std::string_view, 3> text_endings = {".txt", ".txt.gz", ".txt.zst"};

/// Whether the name says plain text, or nothing.
bool may_be_text(const fs::path& path) {
  const std::string name = path.filename().string();
  return !path.has_extension() || std::ranges::any_of(text_endings, [&](std::string_view ending) {
    return name.ends_with(ending);
  });
}

/// Whether a file of a name that tells nothing looks like JSON.
bool begins_as_json(const fs::path& path) {
  const core::File file(path, core::File::Mode::read);
  std::string text(static_cast<std::size_t>(std::min<std::int64_t>(file.size_bytes(), 4096)), ' ');
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  const std::size_t first = text.find_first_not_of(" \t\r\n\xEF\xBB\xBF");
  return first != std::string::npos && (text[first] == '{' || text[first] == '[');
}

std::string field_list(const OrderedJson& record) {
  constexpr std::size_t most = 12;
  std::vector<std::string> names;
  for (const auto& item : record.items()) {
    names.push_back(names.size() == most ? "..." : '"' + core::one_line(item.key()) + '"');
    if (names.size() > most) break;
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

/// What several records say of the formats they fit.
struct Votes {
  std::vector<std::string> strong;
  std::vector<std::string> weak;
  std::string fields;  ///< of the first record
  std::string turns;   ///< what the deck says where its fields are the turns of a chat; or empty
};

void add_once(std::vector<std::string>& names, const std::string& name) {
  if (std::ranges::find(names, name) == names.end()) names.push_back(name);
}

/// Columns called as user and assistant are, in the order of the record: one turn of each.
std::string turns_of(const OrderedJson& record) {
  std::array<std::string, 2> columns;
  bool is_one_each = true;
  for (const auto& item : record.items()) {
    const auto named = role_named(item.key());
    if (!named || (named->role != ChatRole::user && named->role != ChatRole::assistant)) continue;
    std::string& column = columns[named->role == ChatRole::user ? 0 : 1];
    is_one_each = is_one_each && column.empty() && item.value().is_string();
    column = core::one_line(item.key());
  }
  if (!is_one_each || columns[0].empty() || columns[1].empty()) return "";
  return fmt::format("format = \"chat\", turn_columns = [\"{}\", \"{}\"]", columns[0], columns[1]);
}

Votes votes_of(const Records& records, const Columns& columns, std::span<const Format> formats) {
  Votes votes;
  for (std::int64_t i = 0; i < std::min(records.size(), most_records); ++i) {
    OrderedJson record;
    try {
      record = records.object(i);
    } catch (const core::Error&) {
      // Whoever reads all of them will say so; one is enough to know the format.
      if (i == 0) throw;
      break;
    }
    if (i == 0) {
      votes.fields = field_list(record);
      votes.turns = turns_of(record);
    }
    for (const Format& format : formats) {
      const Fit fit = format.fits ? format.fits(record, columns) : Fit::no;
      if (fit == Fit::strong) add_once(votes.strong, format.name);
      if (fit == Fit::weak) add_once(votes.weak, format.name);
    }
  }
  return votes;
}

/// What the deck says of a prompt and its answer under usual names; empty if there are none.
std::string example_for(const Votes& votes) {
  const auto first_of = [&](std::initializer_list<const char*> names) -> std::string {
    for (const char* name : names)
      if (votes.fields.find(fmt::format("\"{}\"", name)) != std::string::npos) return name;
    return "";
  };
  const std::string prompt = first_of({"prompt", "question", "query", "instruction", "input"});
  const std::string answer =
      first_of({"response", "answer", "completion", "output", "target", "chosen"});
  if (prompt.empty() || answer.empty()) return "";
  return fmt::format("format = \"completion\", prompt_column = \"{}\", answer_column = \"{}\"",
                     prompt, answer);
}

[[noreturn]] void fail_undecided(const fs::path& file, const Votes& votes,
                                 const std::vector<std::string>& fitting,
                                 std::span<const Format> formats) {
  if (!fitting.empty()) {
    core::fail(core::ErrorKind::input,
               {file.string(), fmt::format("may be of the format {}", fmt::join(fitting, " or ")),
                fmt::format("the fields of its first record are {}", votes.fields),
                "Set data.format to the one that is meant."});
  }
  const auto has = [&](const char* name) {
    return votes.fields.find(fmt::format("\"{}\"", name)) != std::string::npos;
  };
  if (has("chosen") && has("rejected"))
    core::fail(
        core::ErrorKind::input,
        {file.string(), "holds pairs of a chosen and a rejected answer",
         fmt::format("its first record has the fields {}", votes.fields),
         "To train on both, set model.problem_type = \"reward\"; to learn from the chosen ones "
         "alone, data.format = \"completion\" and data.answer_column = \"chosen\"."});
  if (!votes.turns.empty())
    core::fail(core::ErrorKind::input,
               {file.string(), "has columns that are called as roles of a chat are",
                fmt::format("its first record has the fields {}", votes.fields),
                fmt::format("If they are what user and assistant say, write below [data]: {}.",
                            votes.turns)});
  const std::string example = example_for(votes);
  std::vector<std::string> names;
  // Labels and pairs are for other heads, which ask for no format.
  for (const Format& format : formats)
    if (!format.has_labels && !format.has_pairs) names.push_back(format.name);
  core::fail(
      core::ErrorKind::input,
      {file.string(), "has a format that is not known by its fields",
       fmt::format("its first record has {}",
                   votes.fields.empty() ? "none" : "the fields " + votes.fields),
       example.empty()
           ? fmt::format("Set data.format to one of {}, and name the fields, for example "
                         "data.prompt_column and data.answer_column.",
                         fmt::join(names, ", "))
           : fmt::format("If they are a prompt and its answer, write below [data]: {}.", example)});
}

DetectedFormat plain_text(const fs::path& file, const Columns& columns,
                          std::span<const Format> formats) {
  const bool has_fields = names_columns(columns);
  if (!may_be_text(file) || has_fields) {
    core::fail(core::ErrorKind::input,
               {file.string(), "holds no records that could be read",
                has_fields ? "the deck names fields of records"
                           : "neither its name nor its beginning is that of JSON",
                fmt::format("Write it as JSON lines, one object per line: names of records end in "
                            "{}, those of plain text in {}.",
                            fmt::join(record_endings(), ", "), fmt::join(text_endings, ", "))});
  }
  const auto format = std::ranges::find_if(formats, &Format::reads_plain_text);
  core::check(format != formats.end(), "a format reads plain text");
  return {format->name, fmt::format("{} holds no records", file.filename().string())};
}

}  // namespace

DetectedFormat detect_format(const DataPath& where, const Columns& columns,
                             std::span<const Format> formats) {
  const fs::path file = first_file(where);
  const bool is_text = may_be_text(file) && file.has_extension();
  if (is_text || (record_ending(file).empty() && !begins_as_json(file)))
    return plain_text(file, columns, formats);
  std::shared_ptr<const Records> records = open_first_records(file, most_records);
  if (records->are_documents()) {
    const auto running = std::ranges::find_if(formats, [](const Format& format) {
      return format.has_tokens && format.layout == Layout::continuous;
    });
    core::check(running != formats.end(), "a format reads documents of tokens");
    return {running->name, fmt::format("{} holds documents", file.filename().string()),
            std::move(records)};
  }
  const Votes votes = votes_of(*records, columns, formats);
  const auto& fitting = votes.strong.empty() ? votes.weak : votes.strong;
  if (fitting.size() != 1) fail_undecided(file, votes, fitting, formats);
  std::string note = records->note();
  if (const auto parts = records->left_out(); !parts.empty())
    note += fmt::format("{}without {} (of no form in JSON)", note.empty() ? "" : ", ",
                        fmt::join(parts, ", "));
  return {fitting.front(),
          fmt::format("{} has the fields {}{}", file.filename().string(), votes.fields,
                      note.empty() ? "" : ", " + note),
          std::move(records)};
}

std::vector<std::string_view> data_endings(const DataPath& where) {
  const std::vector<std::string_view> texts(text_endings.begin(), text_endings.end());
  std::error_code ignored;
  if (fs::is_directory(where.path, ignored)) {
    if (has_files(where, record_endings())) return record_endings();
    if (has_files(where, texts)) return texts;
  }
  std::vector<std::string_view> all = record_endings();
  all.insert(all.end(), texts.begin(), texts.end());
  return all;
}

std::vector<fs::path> data_files(const DataPath& where) {
  return is_several(where) ? choose_data_files(where).chosen : std::vector{where.path};
}

SplitFiles choose_data_files(const DataPath& where) {
  return choose_split(where, data_endings(where));
}

}  // namespace finetune::data
