// SPDX-License-Identifier: Apache-2.0
#include "data/records/detail/json_index.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>
#include <string_view>

#include "core/error.hpp"
#include "core/json.hpp"
#include "core/text.hpp"
#include "data/records/detail/cursor.hpp"

namespace finetune::data {
namespace {

std::string position(const Cursor& cursor) {
  const JsonEntry here = cursor.here();
  return fmt::format("{}:{}:{}", cursor.file().path().string(), here.line, here.column);
}

[[noreturn]] void fail_broken(Cursor& cursor, const std::string& expected) {
  const int byte = cursor.peek();
  const std::string found = byte == end_of_file ? "the file ends"
                            : byte >= 0x20 && byte < 0x7F
                                ? fmt::format("'{}' stands", static_cast<char>(byte))
                                : fmt::format("byte 0x{:02x} stands", static_cast<unsigned>(byte));
  const std::string remedy = byte == end_of_file
                                 ? "The file may be truncated; copy or download it again."
                                 : "Correct the file there.";
  core::fail(core::ErrorKind::input,
             {position(cursor), "broken JSON", found + " where " + expected + " should", remedy});
}

void check_length(const Cursor& cursor, const JsonEntry& entry) {
  if (cursor.offset() - entry.offset <= longest_entry_bytes) return;
  core::fail(core::ErrorKind::input,
             {fmt::format("{}:{}", cursor.file().path().string(), entry.line),
              fmt::format("an entry is longer than {}", core::human_bytes(longest_entry_bytes)),
              "no sample of a data set is, so a quote or a bracket may be missing",
              "Correct or remove this entry."});
}

/// Passes over a string whose first quote was taken. False at the end of the file.
bool skip_string(Cursor& cursor, const JsonEntry& entry) {
  for (int byte = cursor.take(); byte != '"'; byte = cursor.take()) {
    if (byte == end_of_file) return false;
    if (byte == '\\') cursor.take();
    check_length(cursor, entry);
  }
  return true;
}

/// Passes over a number or a word. False if there is none.
bool skip_scalar(Cursor& cursor, const JsonEntry& entry) {
  constexpr std::string_view delimiters = ",:{}[]\" \t\r\n";
  while (cursor.peek() != end_of_file &&
         delimiters.find(static_cast<char>(cursor.peek())) == std::string_view::npos) {
    cursor.take();
    check_length(cursor, entry);
  }
  return cursor.offset() > entry.offset;
}

/// Passes over an object or an array by counting brackets. False at the end of the file.
bool skip_nested(Cursor& cursor, const JsonEntry& entry) {
  std::int64_t depth = 0;
  do {
    const int byte = cursor.take();
    if (byte == end_of_file) return false;
    if (byte == '"' && !skip_string(cursor, entry)) return false;
    if (byte == '{' || byte == '[') ++depth;
    if (byte == '}' || byte == ']') --depth;
    check_length(cursor, entry);
  } while (depth > 0);
  return true;
}

JsonEntry skip_value(Cursor& cursor) {
  JsonEntry entry = cursor.here();
  const int first = cursor.peek();
  bool ended = false;
  if (first == '{' || first == '[') {
    ended = skip_nested(cursor, entry);
  } else if (first == '"') {
    cursor.take();
    ended = skip_string(cursor, entry);
  } else if (!skip_scalar(cursor, entry)) {
    fail_broken(cursor, "an entry");
  } else {
    ended = true;
  }
  entry.length = cursor.offset() - entry.offset;
  if (!ended) {
    // The parser knows what was missing and where; the counted brackets only know that it was.
    core::parse_json(read_entry(cursor.file(), entry), cursor.file().path().string(), entry.line);
    fail_broken(cursor, "the end of an entry");
  }
  return entry;
}

JsonEntry next_element(Cursor& cursor) {
  const JsonEntry entry = skip_value(cursor);
  cursor.skip_space();
  if (cursor.peek() == ',') {
    cursor.take();
    cursor.skip_space();
    if (cursor.peek() == end_of_file) fail_broken(cursor, "an entry");
    return entry;
  }
  if (cursor.peek() != ']') fail_broken(cursor, "',' or ']'");
  cursor.take();
  cursor.skip_space();
  if (cursor.peek() != end_of_file) fail_broken(cursor, "the end of the file");
  return entry;
}

JsonEntry next_line(Cursor& cursor) {
  JsonEntry entry = cursor.here();
  cursor.skip_to_line_end();
  check_length(cursor, entry);
  entry.length = cursor.offset() - entry.offset;
  cursor.skip_space();
  return entry;
}

}  // namespace

JsonBegin find_begin(const core::File& file) {
  Cursor cursor(file);
  cursor.skip_byte_order_mark();
  cursor.skip_space();
  JsonBegin begin;
  begin.is_array = cursor.peek() == '[';
  if (begin.is_array) {
    cursor.take();
    cursor.skip_space();
    if (cursor.peek() == ']') {
      begin.is_closed = true;
      cursor.take();
      cursor.skip_space();
    }
  }
  begin.first = cursor.here();
  return begin;
}

NextEntry json_entries(bool is_array) {
  return is_array ? next_element : next_line;
}

std::string read_entry(const core::File& file, const JsonEntry& entry) {
  std::string text(static_cast<std::size_t>(entry.length), '\0');
  file.read_at(entry.offset, std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace finetune::data
