#pragma once
// SPDX-License-Identifier: Apache-2.0
// The entries of a JSON array or JSONL file, found without parsing them.

#include <string>

#include "core/file.hpp"
#include "data/records/detail/cursor.hpp"
#include "data/records/detail/entry_index.hpp"

namespace finetune::data {

/// What stands before the first entry: blanks, a UTF-8 byte order mark, the bracket of an array.
struct JsonBegin {
  bool is_array = false;   ///< the first character is '[': elements rather than one value a line
  bool is_closed = false;  ///< an array of which nothing was found but its end
  JsonEntry first;         ///< where the first entry begins, if there is one
};
JsonBegin find_begin(const core::File& file);

/// Reads elements of an array, or lines that are not blank. Only the structure around the entries
/// is checked; they are checked when they are parsed.
/// Throws: ErrorKind::input naming file and line for a broken array, an entry that does not end or
/// is too long.
NextEntry json_entries(bool is_array);

/// The bytes of an entry.
std::string read_entry(const core::File& file, const JsonEntry& entry);

}  // namespace finetune::data
