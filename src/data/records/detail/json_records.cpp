// SPDX-License-Identifier: Apache-2.0
#include "data/records/detail/json_records.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.hpp"
#include "core/text.hpp"

namespace finetune::data {
namespace {

OrderedJson parse(const std::string& text, const std::string& path, const JsonEntry& entry,
                  const std::string& where, bool is_line) {
  try {
    return core::ordered_json(text, path, entry.line);
  } catch (const core::Error& error) {
    // What concerns the entry as a whole comes without a line: give it the entry's.
    const std::string message = error.what();
    if (message.starts_with(path + ": "))
      throw core::Error(error.kind(), where + message.substr(path.size()));
  }
  // Broken. The column was counted from the entry's start: count again from the line's.
  constexpr std::int64_t widest = 1 << 20;
  const std::string indent(static_cast<std::size_t>(std::min(entry.column - 1, widest)), ' ');
  try {
    return core::ordered_json(indent + text, path, entry.line);
  } catch (const core::Error& error) {
    // A record over several lines looks as if its first line were cut off.
    const std::string message = error.what();
    if (!is_line || message.find("unexpected end of input") == std::string::npos) throw;
    throw core::Error(error.kind(),
                      message + " A file holds one record per line, or one list of records.");
  }
}

}  // namespace

JsonRecords::JsonRecords(const std::filesystem::path& path, std::size_t most_entries)
    : JsonRecords(ReopenedFile(path), most_entries) {}

JsonRecords::JsonRecords(PlainFile file, std::size_t most_entries)
    : JsonRecords(ReopenedFile(std::move(file)), most_entries) {}

JsonRecords::JsonRecords(ReopenedFile file, std::size_t most_entries)
    : file_(std::move(file)),
      entries_([this, most_entries] { return find_entries(most_entries); }) {}

JsonRecords::Entries JsonRecords::find_entries(std::size_t most_entries) const {
  const auto open = file_.open();
  const core::File& file = open->file();
  const JsonBegin begin = find_begin(file);
  Cursor cursor(file, begin.first);
  // An array that ends behind its bracket says what is missing.
  if (begin.is_array && !begin.is_closed && cursor.peek() == end_of_file)
    json_entries(true)(cursor);
  EntryIndex index(cursor, json_entries(begin.is_array), most_entries);
  if (index.size() == 0)
    core::fail(core::ErrorKind::input,
               {path().string(), file.size_bytes() == 0 ? "is empty" : "has no entries",
                "it holds no record", "Is it the right file?"});
  return {begin.is_array, std::move(index)};
}

std::string JsonRecords::index() const {
  const Entries& entries = entries_.get();
  return (entries.is_array ? "a" : "l") + entries.index.bytes();
}

void JsonRecords::adopt(std::string_view index) {
  const bool is_array = index.starts_with('a');
  entries_.set({is_array, EntryIndex(json_entries(is_array), index.substr(index.empty() ? 0 : 1))});
}

void JsonRecords::release() const {
  file_.release();
  if (const Entries* entries = entries_.look()) entries->index.forget();
}

JsonEntry JsonRecords::entry(const core::File& file, std::int64_t i) const {
  return entries_.get().index.at(file, i);
}

OrderedJson JsonRecords::object(std::int64_t i) const {
  const auto open = file_.open();
  const JsonEntry entry = this->entry(open->file(), i);
  const std::string where = where_is(entry, i);
  OrderedJson value = parse(read_entry(open->file(), entry), path().string(), entry, where,
                            !entries_.get().is_array);
  if (!value.is_object()) {
    core::fail(core::ErrorKind::input,
               {where, fmt::format("is a JSON {}", core::type_name(value)),
                "a sample is an object, { ... }", "Correct or remove this entry."});
  }
  return value;
}

std::string JsonRecords::where(std::int64_t i) const {
  return where_is(entry(file_.open()->file(), i), i);
}

std::string JsonRecords::where_is(const JsonEntry& entry, std::int64_t i) const {
  const std::string place = fmt::format("{}:{}", path().string(), entry.line);
  return entries_.get().is_array ? fmt::format("{}: entry {}", place, i + 1) : place;
}

}  // namespace finetune::data
