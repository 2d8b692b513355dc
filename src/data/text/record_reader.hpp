#pragma once
// SPDX-License-Identifier: Apache-2.0
// A reader of files that hold records: JSON, tables, Parquet.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/records/records.hpp"
#include "data/text/detail/files.hpp"
#include "data/text/format.hpp"
#include "data/text/source.hpp"

namespace finetune::data {

/// Each record of a file is a sample; a format says which.
class RecordReader : public SampleReader {
 public:
  /// Throws: as open_records.
  explicit RecordReader(const std::filesystem::path& path) : records_(open_records(path)) {}

  std::int64_t size() const final { return records_->size(); }
  std::string where(std::int64_t i) const final { return records_->where(i); }
  std::vector<std::filesystem::path> files() const final { return records_->files(); }
  std::vector<Records*> record_files() const final { return {records_.get()}; }
  void release() const final { records_->release(); }

  Sample sample(std::int64_t i) const final {
    Sample sample;
    sample.where = records_->where(i);
    read(i, sample);
    return sample;
  }

 protected:
  const Records& records() const { return *records_; }

  /// The bit of Oddity::left_out_part if a part of one of these columns was left out, else none.
  std::uint32_t left_out_of(std::span<const std::string> columns) const {
    for (const std::string& part : records_->left_out())
      for (const std::string& column : columns)
        if (part.starts_with(column + "."))
          return static_cast<std::uint32_t>(Oddity::left_out_part);
    return 0;
  }

 private:
  /// Fills `sample` from record `i`; where it stands is known. Throws: ErrorKind::input.
  virtual void read(std::int64_t i, Sample& sample) const = 0;

  std::unique_ptr<Records> records_;
};

/// The files of a path, by a `FormatReader(file, columns)` each. Throws: as open_files.
template <class FormatReader>
std::unique_ptr<SampleReader> open_record_files(const DataPath& path, const Columns& columns) {
  return open_files(path, record_endings(), [&](const std::filesystem::path& file) {
    return std::make_unique<FormatReader>(file, columns);
  });
}

}  // namespace finetune::data
