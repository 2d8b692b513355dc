#pragma once
// SPDX-License-Identifier: Apache-2.0
// A file of records, whatever its kind: JSON, JSONL, a table, an archive, Parquet, token ids.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.hpp"
#include "core/ordered_json.hpp"

namespace finetune::data {

/// For what is written again as text.
using OrderedJson = core::OrderedJson;

/// Objects in file order. Thread-safe: reading changes nothing that shows. Where they are may be
/// found out when first asked for, by a pass over the file: then every function but `path` throws
/// as open_records.
class Records {
 public:
  virtual ~Records() = default;

  virtual std::int64_t size() const = 0;

  /// Throws: ErrorKind::input with file, line and column for broken JSON or invalid UTF-8, with
  /// file and line if the entry is not an object.
  virtual OrderedJson object(std::int64_t i) const = 0;

  /// "file:line" in JSONL and tables; "file:line: entry 12" (from 1) in an array, whose entries may
  /// share a line; "file: row 12" (from 1), "file: document 12", or a member's name, where there
  /// are no lines.
  virtual std::string where(std::int64_t i) const = 0;

  virtual const std::filesystem::path& path() const = 0;

  /// What such a pass found, for other processes with the same file, who `adopt` it and need none
  /// of their own. Empty: nothing of the kind is needed. Throws: as open_records.
  virtual std::string index() const { return {}; }
  /// Before anything else is asked. Throws: ErrorKind::input if it is no index.
  virtual void adopt(std::string_view /*index*/) {}

  /// Closes the file until something is read again, where it can be.
  virtual void release() const {}

  /// All files whose bytes decide the records.
  virtual std::vector<std::filesystem::path> files() const { return {path()}; }

  /// How it was understood where its name does not say that, for people; empty: as usual.
  virtual std::string note() const { return {}; }

  /// Whether null may only mean that other records have the field: a table gives each struct the
  /// fields of all.
  virtual bool pads_nulls() const { return false; }

  /// Parts of columns whose type has no form in JSON (times, maps, bytes), as "messages.timestamp":
  /// the records lack them. Columns that are such as a whole are not among them.
  virtual std::vector<std::string> left_out() const { return {}; }

  /// Whether these are documents of running text, and not samples.
  virtual bool are_documents() const { return false; }

 protected:
  Records() = default;
  Records(const Records&) = delete;
  Records& operator=(const Records&) = delete;
};

/// Endings of the names of files that open_records reads.
const std::vector<std::string_view>& record_endings();

/// The one of them with which the name of `path` ends; empty for files of other kinds. With the
/// file's bytes it decides how the file is read.
std::string_view record_ending(const std::filesystem::path& path);

/// The file of records that a user means by `named`: the index NAME.idx by NAME or NAME.bin, where
/// these are Megatron-LM's; any other path as it is.
std::filesystem::path record_file(const std::filesystem::path& named);

/// Opens a file by the ending of its name; without one of those it is JSON or JSONL, recognised by
/// its first character. Throws: ErrorKind::input for a file that cannot be opened or decompressed,
/// is broken or holds no record, where that shows already.
std::unique_ptr<Records> open_records(const std::filesystem::path& path);

/// The same, but for Parquet the first `most_records` alone: what follows is not looked at.
std::unique_ptr<Records> open_first_records(const std::filesystem::path& path,
                                            std::size_t most_records);

/// What `json.dumps(value, ensure_ascii=False)` of Python writes, as chat templates do: also whole
/// numbers of any length (core::exact_digits) and floats.
std::string dump_json(const OrderedJson& value);

}  // namespace finetune::data
