#pragma once
// SPDX-License-Identifier: Apache-2.0
// The objects of a JSON array or JSONL file, parsed one by one when asked for.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <string_view>

#include "data/records/detail/json_index.hpp"
#include "data/records/detail/lazy_index.hpp"
#include "data/records/detail/plain_file.hpp"
#include "data/records/records.hpp"

namespace finetune::data {

/// A file of JSON objects, an array of them or one per line, which are looked for when first asked
/// for. Throws then: ErrorKind::input as json_entries does, or if there is none.
class JsonRecords final : public Records {
 public:
  /// Throws: ErrorKind::input if the file cannot be opened.
  explicit JsonRecords(const std::filesystem::path& path);
  explicit JsonRecords(PlainFile file,
                       std::size_t most_entries = std::numeric_limits<std::size_t>::max());

  std::int64_t size() const override { return index_.get().size(); }
  core::Json object(std::int64_t i) const override;
  OrderedJson ordered(std::int64_t i) const override;
  std::string where(std::int64_t i) const override;
  const std::filesystem::path& path() const override { return file_.path(); }
  std::string index() const override { return index_.get().bytes(); }
  void adopt(std::string_view index) override;

 private:
  std::string where_is(const JsonEntry& entry, std::int64_t i) const;

  PlainFile plain_;
  const core::File& file_;
  JsonBegin begin_;
  LazyIndex index_;
};

}  // namespace finetune::data
