#pragma once
// SPDX-License-Identifier: Apache-2.0
// Rows of Parquet files without Arrow's library.

#include <filesystem>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/file.hpp"
#include "data/records/detail/parquet_rows.hpp"
#include "data/records/records.hpp"

namespace finetune::data {

/// Columns become fields: texts, whole and real numbers, booleans, lists and structs of them;
/// others (bytes, times, maps, ...) are left out, of a struct each for itself. All encodings of
/// parquet-format 2.11 but bit-packed levels; pages as they are, or compressed by snappy, gzip,
/// zstd or lz4_raw; not encrypted. Kept are the description and one group of rows, the last that
/// was read.
class ParquetFileRecords final : public Records {
 public:
  /// Reads the description alone. Throws: ErrorKind::input for a file that is none, is truncated,
  /// damaged or encrypted, or has no rows.
  explicit ParquetFileRecords(core::File file);

  std::int64_t size() const override { return ends_.back(); }
  OrderedJson object(std::int64_t i) const override;
  /// "file: row 12", from 1.
  std::string where(std::int64_t i) const override;
  const std::filesystem::path& path() const override { return file_.path(); }
  bool pads_nulls() const override { return true; }
  std::vector<std::string> left_out() const override { return schema_.left_out; }

 private:
  std::shared_ptr<const parquet_file::RowGroup> group(std::size_t g) const;

  core::File file_;
  std::string name_;
  std::vector<std::byte> description_;  ///< which texts of `metadata_` are views of
  ThriftValue metadata_;
  parquet_file::Schema schema_;
  std::vector<std::int64_t> ends_;  // ends_[g]: rows in groups 0 .. g
  mutable std::mutex mutex_;
  mutable std::size_t kept_ = std::numeric_limits<std::size_t>::max();
  mutable std::shared_ptr<const parquet_file::RowGroup> group_;
};

}  // namespace finetune::data
