// SPDX-License-Identifier: Apache-2.0
#include "data/json_records.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "core/error.hpp"
#include "core/text.hpp"

namespace finetune::data {
namespace {

core::Json parse(const std::string& text, const std::string& path, const JsonEntry& entry,
                 const std::string& where) {
  try {
    return core::parse_json(text, path, entry.line);
  } catch (const core::Error& error) {
    // What concerns the entry as a whole comes without a line: give it the entry's.
    const std::string message = error.what();
    if (message.starts_with(path + ": "))
      throw core::Error(error.kind(), where + message.substr(path.size()));
  }
  // Broken. The column was counted from the entry's start: count again from the line's.
  constexpr std::int64_t widest = 1 << 20;
  const std::string indent(static_cast<std::size_t>(std::min(entry.column - 1, widest)), ' ');
  return core::parse_json(indent + text, path, entry.line);
}

/// `"instruction", "input"`: the names an object has, for the message about the one it has not.
std::string field_names(const core::Json& object) {
  constexpr std::size_t most = 8;
  std::string names;
  std::size_t count = 0;
  for (const auto& item : object.items()) {
    if (++count > most) return names + ", ...";
    names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", core::one_line(item.key()));
  }
  return names;
}

[[noreturn]] void fail_missing(const core::Json& object, const std::string& name,
                               const std::string& where) {
  std::vector<std::string> names;
  for (const auto& item : object.items())
    names.push_back(item.key());
  const auto meant = core::nearest(name, names);
  core::fail(
      core::ErrorKind::input,
      {where, fmt::format("field \"{}\" is missing", name),
       names.empty() ? "the object is empty" : "the fields are " + field_names(object),
       meant ? fmt::format("Did you mean it by \"{}\"? Rename the field.", core::one_line(*meant))
             : "Add it, or choose the data.format of these data."});
}

std::string text_of(const core::Json& value, const std::string& name, const std::string& where) {
  if (!value.is_string()) {
    core::fail(core::ErrorKind::input,
               {where, fmt::format("field \"{}\" is of type {}", name, value.type_name()),
                "text is needed", "Make it a string."});
  }
  return value.get<std::string>();
}

}  // namespace

JsonRecords::JsonRecords(const std::filesystem::path& path)
    : file_(path, core::File::Mode::read), index_(index_json(file_)) {}

core::Json JsonRecords::object(std::int64_t i) const {
  const JsonEntry& entry = index_.entries.at(static_cast<std::size_t>(i));
  core::Json value = parse(read_entry(file_, entry), file_.path().string(), entry, where(i));
  if (!value.is_object()) {
    core::fail(core::ErrorKind::input,
               {where(i), fmt::format("is a JSON {}", value.type_name()),
                "a sample is an object, { ... }", "Mend or remove this entry."});
  }
  return value;
}

std::string JsonRecords::where(std::int64_t i) const {
  const auto line = index_.entries.at(static_cast<std::size_t>(i)).line;
  const std::string place = fmt::format("{}:{}", file_.path().string(), line);
  return index_.is_array ? fmt::format("{}: entry {}", place, i + 1) : place;
}

std::string required_text(const core::Json& object, const std::string& name,
                          const std::string& where) {
  const auto field = object.find(name);
  if (field == object.end()) fail_missing(object, name, where);
  return text_of(*field, name, where);
}

std::string optional_text(const core::Json& object, const std::string& name,
                          const std::string& where) {
  const auto field = object.find(name);
  if (field == object.end() || field->is_null()) return "";
  return text_of(*field, name, where);
}

}  // namespace finetune::data
