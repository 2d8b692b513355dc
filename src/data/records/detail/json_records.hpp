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
#include "data/records/detail/lazy.hpp"
#include "data/records/detail/plain_file.hpp"
#include "data/records/detail/reopened_file.hpp"
#include "data/records/records.hpp"

namespace finetune::data {

/// A file of JSON objects, an array of them or one per line, which are looked for when first asked
/// for. Throws then: ErrorKind::input as json_entries and open_plain do, or if there is none.
class JsonRecords final : public Records {
 public:
  explicit JsonRecords(const std::filesystem::path& path,
                       std::size_t most_entries = std::numeric_limits<std::size_t>::max());
  explicit JsonRecords(PlainFile file,
                       std::size_t most_entries = std::numeric_limits<std::size_t>::max());

  std::int64_t size() const override { return entries_.get().index.size(); }
  OrderedJson object(std::int64_t i) const override;
  std::string where(std::int64_t i) const override;
  const std::filesystem::path& path() const override { return file_.path(); }
  std::string index() const override;
  void adopt(std::string_view index) override;
  void release() const override;

 private:
  struct Entries {
    bool is_array;
    EntryIndex index;
  };

  JsonRecords(ReopenedFile file, std::size_t most_entries);
  Entries find_entries(std::size_t most_entries) const;
  JsonEntry entry(const core::File& file, std::int64_t i) const;
  std::string where_is(const JsonEntry& entry, std::int64_t i) const;

  ReopenedFile file_;
  Lazy<Entries> entries_;
};

}  // namespace finetune::data
