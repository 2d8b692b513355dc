// SPDX-License-Identifier: Apache-2.0
#include "data/records/detail/json_records.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.hpp"
#include "core/text.hpp"

namespace finetune::data {
namespace {

core::Json parse(const std::string& text, const std::string& path, const JsonEntry& entry,
                 const std::string& where, bool is_line) {
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
  try {
    return core::parse_json(indent + text, path, entry.line);
  } catch (const core::Error& error) {
    // A record over several lines looks as if its first line were cut off.
    const std::string message = error.what();
    if (!is_line || message.find("unexpected end of input") == std::string::npos) throw;
    throw core::Error(error.kind(),
                      message + " A file holds one record per line, or one list of records.");
  }
}

}  // namespace

JsonRecords::JsonRecords(const std::filesystem::path& path)
    : JsonRecords(PlainFile(core::File(path, core::File::Mode::read))) {}

JsonRecords::JsonRecords(PlainFile file, std::size_t most_entries)
    : plain_(std::move(file)),
      file_(plain_.file()),
      begin_(find_begin(file_)),
      index_([this, most_entries] {
        Cursor cursor(file_, begin_.first);
        // An array that ends behind its bracket says what is missing.
        if (begin_.is_array && !begin_.is_closed && cursor.peek() == end_of_file)
          json_entries(true)(cursor);
        EntryIndex index(cursor, json_entries(begin_.is_array), most_entries);
        if (index.size() == 0)
          core::fail(
              core::ErrorKind::input,
              {file_.path().string(), file_.size_bytes() == 0 ? "is empty" : "has no entries",
               "there is nothing to train on", "Check data.path."});
        return index;
      }) {}

void JsonRecords::adopt(std::string_view index) {
  index_.set(EntryIndex(file_, json_entries(begin_.is_array), index));
}

core::Json JsonRecords::object(std::int64_t i) const {
  const JsonEntry entry = index_.get().at(i);
  const std::string where = where_is(entry, i);
  core::Json value =
      parse(read_entry(file_, entry), file_.path().string(), entry, where, !begin_.is_array);
  if (!value.is_object()) {
    core::fail(core::ErrorKind::input,
               {where, fmt::format("is a JSON {}", value.type_name()),
                "a sample is an object, { ... }", "Correct or remove this entry."});
  }
  return value;
}

OrderedJson JsonRecords::ordered(std::int64_t i) const {
  // `object` has seen the same text: its depth and size are within bounds.
  return OrderedJson::parse(read_entry(file_, index_.get().at(i)));
}

std::string JsonRecords::where(std::int64_t i) const {
  return where_is(index_.get().at(i), i);
}

std::string JsonRecords::where_is(const JsonEntry& entry, std::int64_t i) const {
  const std::string place = fmt::format("{}:{}", file_.path().string(), entry.line);
  return begin_.is_array ? fmt::format("{}: entry {}", place, i + 1) : place;
}

}  // namespace finetune::data
