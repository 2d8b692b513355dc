// SPDX-License-Identifier: Apache-2.0
#include "data/records/detail/csv_records.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <utility>

#include "core/error.hpp"
#include "core/text.hpp"
#include "data/records/detail/cursor.hpp"

namespace finetune::data {
namespace {

/// What a byte of a row does, for the pass that looks for rows and for the one that splits them.
class RowReader {
 public:
  enum class Event { text, nothing, end_of_field, end_of_row, broken };

  explicit RowReader(char separator) : separator_(separator) {}

  Event take(int byte) {
    const bool is_line_end = byte == '\n' || byte == '\r';
    switch (state_) {
      case State::quoted:
        if (byte != '"') return Event::text;
        state_ = State::behind_quote;
        return Event::nothing;
      case State::behind_quote:
        if (byte == '"') {
          state_ = State::quoted;
          return Event::text;
        }
        if (byte != separator_ && !is_line_end) return Event::broken;
        break;
      case State::begin_of_field:
        if (byte == '"') {
          state_ = State::quoted;
          return Event::nothing;
        }
        break;
      case State::plain:
        break;
    }
    state_ = byte == separator_ || is_line_end ? State::begin_of_field : State::plain;
    if (is_line_end) return Event::end_of_row;
    return byte == separator_ ? Event::end_of_field : Event::text;
  }

  bool is_quoted() const { return state_ == State::quoted; }

 private:
  enum class State { begin_of_field, plain, quoted, behind_quote };

  char separator_;
  State state_ = State::begin_of_field;
};

[[noreturn]] void fail_at(const core::File& file, std::int64_t line, const std::string& problem,
                          const std::string& why, const std::string& remedy) {
  core::fail(core::ErrorKind::input,
             {fmt::format("{}:{}", file.path().string(), line), problem, why, remedy});
}

void skip_line_ends(Cursor& cursor) {
  while (cursor.peek() == '\n' || cursor.peek() == '\r')
    cursor.take();
}

/// The row that begins here, without the end of its line.
JsonEntry next_row(Cursor& cursor, char separator) {
  JsonEntry row = cursor.here();
  RowReader reader(separator);
  std::int64_t opened = row.line;
  while (cursor.peek() != end_of_file) {
    const bool was_quoted = reader.is_quoted();
    const auto event = reader.take(cursor.peek());
    if (event == RowReader::Event::broken)
      fail_at(cursor.file(), cursor.here().line,
              fmt::format("column {}: text stands behind a closing quote", cursor.here().column),
              "a quote within quotes is written twice", "Correct the row.");
    if (event == RowReader::Event::end_of_row) break;
    if (!was_quoted && reader.is_quoted()) opened = cursor.here().line;
    cursor.take();
    if (cursor.offset() - row.offset > longest_entry_bytes)
      fail_at(cursor.file(), row.line,
              fmt::format("a row is longer than {}", core::human_bytes(longest_entry_bytes)),
              "no sample of a data set is, so a quote may be missing", "Correct the row.");
  }
  if (reader.is_quoted())
    fail_at(cursor.file(), opened, "the quote that opens here does not close",
            "the file ends before", "Add the quote, or copy the file again if it is truncated.");
  row.length = cursor.offset() - row.offset;
  return row;
}

/// In messages.
std::string shown(char separator) {
  return separator == '\t' ? "tabs" : fmt::format("'{}'", separator);
}

/// Of the row that begins here, whatever it is separated by; a file of one endless line is none.
char separator_of_row(Cursor& cursor) {
  constexpr std::string_view candidates = ",;|\t";
  constexpr std::int64_t longest = 1 << 20;
  std::array<std::int64_t, candidates.size()> counts{};
  bool is_quoted = false;
  for (std::int64_t i = 0; i < longest && cursor.peek() != end_of_file; ++i) {
    const int byte = cursor.peek();
    if (byte == '"') is_quoted = !is_quoted;
    if (!is_quoted && (byte == '\n' || byte == '\r')) break;
    const std::size_t found =
        byte < 128 ? candidates.find(static_cast<char>(byte)) : candidates.npos;
    if (!is_quoted && found != candidates.npos) ++counts[found];
    cursor.take();
  }
  return candidates[static_cast<std::size_t>(std::ranges::max_element(counts) - counts.begin())];
}

}  // namespace

void skip_to_rows(Cursor& cursor) {
  cursor.skip_byte_order_mark();
  skip_line_ends(cursor);
}

NextEntry csv_rows(char separator) {
  return [separator](Cursor& cursor) {
    const JsonEntry row = next_row(cursor, separator);
    skip_line_ends(cursor);
    return row;
  };
}

std::vector<std::string> split_row(std::string_view row, char separator) {
  std::vector<std::string> fields(1);
  RowReader reader(separator);
  for (const char byte : row) {
    const auto event = reader.take(static_cast<unsigned char>(byte));
    if (event == RowReader::Event::text) fields.back() += byte;
    if (event == RowReader::Event::end_of_field) fields.emplace_back();
  }
  return fields;
}

CsvRecords::CsvRecords(const std::filesystem::path& path, char separator, std::size_t most_rows)
    : CsvRecords(ReopenedFile(path), separator, most_rows) {}

CsvRecords::CsvRecords(PlainFile file, char separator, std::size_t most_rows)
    : CsvRecords(ReopenedFile(std::move(file)), separator, most_rows) {}

CsvRecords::CsvRecords(ReopenedFile file, char separator, std::size_t most_rows)
    : file_(std::move(file)),
      given_(separator),
      separator_([this] { return find_separator(); }),
      rows_([this, most_rows] { return find_rows(most_rows); }),
      names_([this] { return read_names(); }) {}

char CsvRecords::find_separator() const {
  if (given_ != separator_of_names) return given_;
  const auto open = file_.open();
  Cursor cursor(open->file());
  skip_to_rows(cursor);
  return separator_of_row(cursor);
}

std::string CsvRecords::note() const {
  const bool is_usual = given_ != separator_of_names || separator_.get() == ',';
  return is_usual ? "" : fmt::format("separated by {}", shown(separator_.get()));
}

EntryIndex CsvRecords::find_rows(std::size_t most_rows) const {
  const auto open = file_.open();
  Cursor cursor(open->file());
  skip_to_rows(cursor);
  EntryIndex rows(cursor, csv_rows(separator_.get()), most_rows + 1);
  if (rows.size() < 2)
    core::fail(core::ErrorKind::input,
               {path().string(), rows.size() == 0 ? "is empty" : "has no row below its names",
                "it holds no record", "Is it the right file?"});
  return rows;
}

std::vector<std::string> CsvRecords::read_names() const {
  const auto open = file_.open();
  const JsonEntry first = rows_.get().at(open->file(), 0);
  std::vector<std::string> names = row(open->file(), first);
  std::set<std::string> seen;
  for (const std::string& name : names)
    if (!seen.insert(name).second)
      fail_at(open->file(), first.line,
              fmt::format("two columns are called \"{}\"", core::one_line(name)),
              "the first row has the names of the columns",
              "Give each a name of its own; a file without names gets such a row.");
  return names;
}

void CsvRecords::adopt(std::string_view index) {
  rows_.set(EntryIndex(csv_rows(separator_.get()), index));
}

void CsvRecords::release() const {
  file_.release();
  if (const EntryIndex* rows = rows_.look()) rows->forget();
}

std::vector<std::string> CsvRecords::row(const core::File& file, const JsonEntry& entry) const {
  const std::string text = read_entry(file, entry);
  const auto line_of = [&](std::size_t byte) {
    return entry.line + std::count(text.begin(), text.begin() + static_cast<long>(byte), '\n');
  };
  if (const std::size_t zero = text.find('\0'); zero != std::string::npos)
    fail_at(file, line_of(zero), "holds a byte of value 0", "UTF-16 and binary files do",
            "Convert the file to UTF-8.");
  if (const auto bad = core::invalid_utf8(text))
    fail_at(file, line_of(*bad),
            fmt::format("byte 0x{:02x} is not valid UTF-8",
                        static_cast<unsigned>(static_cast<unsigned char>(text[*bad]))),
            "tables are read as UTF-8", "Convert the file, for example with iconv.");
  return split_row(text, separator_.get());
}

OrderedJson CsvRecords::object(std::int64_t i) const {
  const auto open = file_.open();
  const std::vector<std::string>& names = names_.get();
  const std::vector<std::string> fields = row(open->file(), rows_.get().at(open->file(), i + 1));
  if (fields.size() != names.size())
    core::fail(core::ErrorKind::input,
               {where(i), fmt::format("the row has {} fields", fields.size()),
                fmt::format("the first row names {} column{}, separated by {}", names.size(),
                            names.size() == 1 ? "" : "s", shown(separator_.get())),
                "Put a text that holds the separator or a line end between quotes; tables are "
                "separated by commas, semicolons, | or tabs."});
  OrderedJson record = OrderedJson::object();
  for (std::size_t f = 0; f < fields.size(); ++f)
    record[names[f]] = fields[f];
  return record;
}

std::string CsvRecords::where(std::int64_t i) const {
  const auto open = file_.open();
  return fmt::format("{}:{}", path().string(), rows_.get().at(open->file(), i + 1).line);
}

}  // namespace finetune::data
