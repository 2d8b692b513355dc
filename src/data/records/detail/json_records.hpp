#pragma once
// SPDX-License-Identifier: Apache-2.0
// The objects of a JSON array or JSONL file, parsed one by one when asked for.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>

#include "data/records/detail/json_index.hpp"
#include "data/records/detail/plain_file.hpp"
#include "data/records/records.hpp"

namespace finetune::data {

/// A file of JSON objects, an array of them or one per line.
class JsonRecords final : public Records {
 public:
  /// Throws: ErrorKind::input as index_json does, or if the file cannot be opened.
  explicit JsonRecords(const std::filesystem::path& path);
  explicit JsonRecords(PlainFile file,
                       std::size_t most_entries = std::numeric_limits<std::size_t>::max());

  std::int64_t size() const override { return std::ssize(index_.entries); }
  core::Json object(std::int64_t i) const override;
  OrderedJson ordered(std::int64_t i) const override;
  std::string where(std::int64_t i) const override;
  const std::filesystem::path& path() const override { return file_.path(); }

 private:
  PlainFile plain_;
  const core::File& file_;
  JsonIndex index_;
};

}  // namespace finetune::data
