#pragma once
// SPDX-License-Identifier: Apache-2.0
// Rows of Arrow's IPC files: what datasets' save_to_disk writes, and Feather (version 2).

#include <cstddef>
#include <filesystem>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/file.hpp"
#include "data/records/detail/arrow_batch.hpp"
#include "data/records/records.hpp"

namespace finetune::data {

/// A stream of messages, or a file of them (which begins with ARROW1). Columns become fields:
/// texts, whole and real numbers, booleans, lists, structs, dictionaries; others are left out, of a
/// struct each for itself. Kept are the places of the batches, and one batch, the last that was
/// read; buffers may be compressed by LZ4 or zstd. Source: Apache Arrow, "Serialization and
/// Interprocess Communication (IPC)", version 1.x.
class ArrowRecords final : public Records {
 public:
  /// Reads descriptions alone, until there are `most_rows`. Throws: ErrorKind::input for a file
  /// that is none, is truncated or damaged, or has no rows.
  explicit ArrowRecords(core::File file,
                        std::size_t most_rows = std::numeric_limits<std::size_t>::max());

  std::int64_t size() const override { return num_rows_; }
  OrderedJson object(std::int64_t i) const override;
  /// "file: row 12", from 1.
  std::string where(std::int64_t i) const override;
  const std::filesystem::path& path() const override { return file_.path(); }
  bool pads_nulls() const override { return true; }
  std::vector<std::string> left_out() const override { return arrow_ipc::left_out_of(fields_); }

 private:
  /// A message: its description, and what is behind it.
  struct Part {
    std::int64_t at = 0;
    std::int64_t bytes = 0;
    std::int64_t body_at = 0;
    std::int64_t body_bytes = 0;
    std::int64_t end_row = 0;  ///< of a record batch
  };
  void scan_stream(std::size_t most_rows);
  void scan_file(std::size_t most_rows);
  /// The message at a byte, with its description; nothing where the messages end.
  std::optional<std::pair<Part, std::vector<std::byte>>> message_at(std::int64_t at) const;
  void take_schema(const FlatTable& schema);
  void take(const FlatTable& message, Part part);
  void read_dictionary(const FlatTable& message, const Part& part);
  std::vector<std::byte> description(const Part& part) const;
  std::shared_ptr<const arrow_ipc::Batch> batch(std::size_t b) const;

  core::File file_;
  std::string name_;
  std::vector<arrow_ipc::Field> fields_;
  bool has_schema_ = false;
  std::map<std::int64_t, std::vector<arrow_ipc::Field>> dictionary_fields_;
  arrow_ipc::Dictionaries dictionaries_;
  std::vector<Part> batches_;
  std::int64_t num_rows_ = 0;
  mutable std::mutex mutex_;
  mutable std::size_t kept_ = std::numeric_limits<std::size_t>::max();
  mutable std::shared_ptr<const arrow_ipc::Batch> batch_;
};

}  // namespace finetune::data
