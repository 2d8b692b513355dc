#pragma once
// SPDX-License-Identifier: Apache-2.0
// Where each entry of a JSON array or JSONL file begins, found in one pass without parsing it.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/file.hpp"

namespace finetune::data {

/// An entry's place in its file: bytes [offset, offset + length), beginning at line and column
/// (both from 1, the column in bytes).
struct JsonEntry {
  std::int64_t offset = 0;
  std::int64_t length = 0;
  std::int64_t line = 1;
  std::int64_t column = 1;
};

struct JsonIndex {
  bool is_array = false;  ///< entries of one array rather than one value a line
  std::vector<JsonEntry> entries;
};

/// No entry is longer than this: what is longer is not a data set but a mistake or an attack.
inline constexpr std::int64_t longest_entry_bytes = std::int64_t{64} << 20;

/// Finds the entries of `file`: the elements of a JSON array if its first character is '[', else
/// its lines that are not blank. A UTF-8 byte order mark is skipped. Only the structure around
/// the entries is checked; the entries are checked when they are parsed.
/// Throws: ErrorKind::input naming file and line for a broken array, an entry that does not end or
/// is too long, or a file without entries. Stops after `most_entries`.
JsonIndex index_json(const core::File& file,
                     std::size_t most_entries = std::numeric_limits<std::size_t>::max());

/// The bytes of an entry.
std::string read_entry(const core::File& file, const JsonEntry& entry);

}  // namespace finetune::data
