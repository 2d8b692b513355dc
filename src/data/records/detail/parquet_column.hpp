#pragma once
// SPDX-License-Identifier: Apache-2.0
// A column of a group of rows, in memory.

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "core/file.hpp"
#include "data/records/detail/parquet_encodings.hpp"
#include "data/records/detail/parquet_schema.hpp"

namespace finetune::data::parquet_file {

/// Where a column's part of a group of rows lies.
struct Chunk {
  std::int64_t at = 0;
  std::int64_t bytes = 0;
  std::int64_t num_entries = 0;
  int codec = 0;
};

/// The chunk of a ColumnChunk, inside a file of `file_bytes`. Throws: ErrorKind::input beginning
/// with `where`, also for columns that lie in another file.
Chunk chunk_of(const ThriftValue& column, std::int64_t file_bytes, const std::string& where);

/// Entries of a leaf: a value each, or what is missing, by their levels.
class LeafColumn {
 public:
  /// The next entry, and the next value.
  struct Cursor {
    std::size_t entry = 0;
    std::size_t value = 0;
  };

  /// Reads and decodes all pages. Throws: ErrorKind::input beginning with `where` for what is
  /// damaged, in an encoding that is not known, not of `num_rows` rows, or too large for `room`.
  LeafColumn(const core::File& file, const Chunk& chunk, const Leaf& leaf, std::int64_t num_rows,
             Room& room, const std::string& where);

  const Leaf& leaf() const { return leaf_; }
  const Values& values() const { return values_; }
  Cursor row(std::int64_t i) const;
  bool is_at_end(const Cursor& cursor) const { return cursor.entry >= num_entries_; }
  int definition(const Cursor& cursor) const {
    return leaf_.max_definition == 0 ? 0 : definitions_[cursor.entry];
  }
  int repetition(const Cursor& cursor) const {
    return leaf_.max_repetition == 0 ? 0 : repetitions_[cursor.entry];
  }
  void advance(Cursor& cursor) const {
    if (definition(cursor) == leaf_.max_definition) ++cursor.value;
    ++cursor.entry;
  }

 private:
  struct Page;
  void read_dictionary(const Page& page, Room& room);
  void read_page(const Page& page, Room& room);
  void read_levels(Bytes levels, int most, std::int64_t count, std::vector<std::uint8_t>& out,
                   Room& room);
  void read_codes(Bytes bytes, std::int64_t count, Room& room);
  Bytes unpacked(Bytes packed, std::int64_t size, Room& room);
  void index_rows(std::int64_t num_rows, Room& room);

  Leaf leaf_;
  const std::string& where_;
  int codec_;
  std::size_t num_entries_ = 0;
  std::vector<std::uint8_t> repetitions_, definitions_;
  Values values_;
  Values dictionary_;
  bool has_dictionary_ = false;
  std::deque<std::vector<std::byte>> owned_;  ///< pages, and texts of several
  std::vector<Cursor> marks_;                 ///< where each 64th row begins
};

}  // namespace finetune::data::parquet_file
