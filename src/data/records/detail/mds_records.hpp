#pragma once
// SPDX-License-Identifier: Apache-2.0
// Samples as MosaicML's streaming keeps them: folders of shards, each a file of its own (MDS).

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/records/detail/plain_file.hpp"
#include "data/records/records.hpp"

namespace finetune::data {

/// The samples of a shard. Columns become fields: texts (str, str_decimal), JSON (json), numbers
/// (int, int8 to uint64, float32, float64, str_int, str_float) and arrays of numbers (ndarray, as
/// lists). Others, pictures and bytes, are left out; but the bytes of a column "tokens" are ids of
/// 64 bits, as LLM Foundry writes them. Of a sample its bytes are read when it is, and of the table
/// of places its two entries.
/// Source: streaming.base.format.mds (mosaicml-streaming 0.13), version 2: u32 samples N, u32
/// places [N + 1] of the samples and of the end, JSON of the columns; a sample is u32 sizes of the
/// columns whose size varies, and the bytes of all columns.
class MdsRecords final : public Records {
 public:
  /// Throws: ErrorKind::input for a file that is none, is truncated, or has no samples.
  explicit MdsRecords(PlainFile file);

  std::int64_t size() const override { return num_samples_; }
  /// Throws: ErrorKind::input naming the sample, where its sizes do not fit, or a value is broken.
  OrderedJson object(std::int64_t i) const override;
  /// "file: sample 12", from 1.
  std::string where(std::int64_t i) const override;
  const std::filesystem::path& path() const override { return file_.path(); }

 private:
  struct Column {
    std::string name;
    std::string encoding;
    std::optional<std::int64_t> bytes;  ///< nothing: they vary
  };
  void read_columns(const std::string& text);
  std::vector<std::byte> bytes_of(std::int64_t i) const;

  PlainFile plain_;
  const core::File& file_;
  std::int64_t num_samples_ = 0;
  std::vector<Column> columns_;
};

/// Opens a shard, decompressed by gzip or zstd; with the first one of a folder it is checked that
/// all files of its index.json are there, with their sizes. Throws: ErrorKind::input.
std::unique_ptr<Records> open_mds(const std::filesystem::path& path);

}  // namespace finetune::data
