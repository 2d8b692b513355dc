#pragma once
// SPDX-License-Identifier: Apache-2.0
// The objects of a JSON array or JSONL file, parsed one by one when asked for.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "core/file.hpp"
#include "core/json.hpp"
#include "data/json_index.hpp"

namespace finetune::data {

/// A file of JSON objects. Thread-safe: reading changes nothing.
class JsonRecords {
 public:
  /// Throws: ErrorKind::input as index_json does, or if the file cannot be opened.
  explicit JsonRecords(const std::filesystem::path& path);

  std::int64_t size() const { return std::ssize(index_.entries); }

  /// Throws: ErrorKind::input with file, line and column for broken JSON or invalid UTF-8, with
  /// file and line if the entry is not an object.
  core::Json object(std::int64_t i) const;

  /// "file:line" in JSONL; "file:line: entry 12" (from 1) in an array, whose entries may share a
  /// line.
  std::string where(std::int64_t i) const;

 private:
  core::File file_;
  JsonIndex index_;
};

/// The text of the field `name` of `object`. Throws: ErrorKind::input beginning with `where` if it
/// is missing or not a string.
std::string required_text(const core::Json& object, const std::string& name,
                          const std::string& where);

/// As required_text, but a missing field or null is an empty text.
std::string optional_text(const core::Json& object, const std::string& name,
                          const std::string& where);

}  // namespace finetune::data
