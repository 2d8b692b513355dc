#pragma once
// SPDX-License-Identifier: Apache-2.0
// The rows of a table of text, CSV or TSV, split one by one when asked for.

#include <cstddef>
#include <filesystem>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "data/records/detail/json_index.hpp"
#include "data/records/detail/lazy.hpp"
#include "data/records/detail/plain_file.hpp"
#include "data/records/detail/reopened_file.hpp"
#include "data/records/records.hpp"

namespace finetune::data {

/// Passes over empty lines before the first row, and a byte order mark.
void skip_to_rows(Cursor& cursor);

/// Reads the rows of a table, of which the first names the columns. They are as in RFC 4180 and in
/// Python's csv module (strict): a field between quotes may hold separators, line ends and,
/// doubled, quotes; a quote within another field is a character like any other; a line ends with
/// \n, \r\n or \r; empty lines are no rows. Throws: ErrorKind::input naming file and line for text
/// behind a closing quote, a quote that does not close, or a row that is too long.
NextEntry csv_rows(char separator);

/// The fields of a row that `csv_rows` found.
std::vector<std::string> split_row(std::string_view row, char separator);

/// In the place of a separator: the one that the first row has most of, of comma, ; | and tab, and
/// the comma where that is open.
inline constexpr char separator_of_names = '\0';

/// A table whose first row has the names of the columns. All values are texts. Rows are looked for
/// when first asked for. Throws then: ErrorKind::input as csv_rows and open_plain do, for columns
/// of the same name, or without any row below their names.
class CsvRecords final : public Records {
 public:
  CsvRecords(const std::filesystem::path& path, char separator,
             std::size_t most_rows = std::numeric_limits<std::size_t>::max() - 1);
  CsvRecords(PlainFile file, char separator,
             std::size_t most_rows = std::numeric_limits<std::size_t>::max() - 1);

  std::int64_t size() const override { return rows_.get().size() - 1; }
  /// Throws: ErrorKind::input naming the line, for a row of another number of fields, or one that
  /// is not UTF-8.
  OrderedJson object(std::int64_t i) const override;
  std::string where(std::int64_t i) const override;
  const std::filesystem::path& path() const override { return file_.path(); }
  std::string index() const override { return rows_.get().bytes(); }
  void adopt(std::string_view index) override;
  void release() const override;
  std::string note() const override;

 private:
  CsvRecords(ReopenedFile file, char separator, std::size_t most_rows);
  EntryIndex find_rows(std::size_t most_rows) const;
  /// Throws: ErrorKind::input for columns of the same name.
  std::vector<std::string> read_names() const;
  /// The fields of a row, the first of which are names. Throws: ErrorKind::input.
  std::vector<std::string> row(const core::File& file, const JsonEntry& entry) const;

  char find_separator() const;

  ReopenedFile file_;
  char given_;
  Lazy<char> separator_;
  Lazy<EntryIndex> rows_;  ///< with that of the names
  Lazy<std::vector<std::string>> names_;
};

}  // namespace finetune::data
