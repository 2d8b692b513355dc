#pragma once
// SPDX-License-Identifier: Apache-2.0
// Small functions on UTF-8 text: validation, escaping, nearest name, human numbers.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace finetune::core {

/// Byte offset of the first byte that is not part of valid UTF-8 (RFC 3629), nothing if all is.
std::optional<std::size_t> invalid_utf8(std::string_view text);

/// `text` so that a file's content cannot steer a terminal: control characters other than newline
/// and tab, and bytes that are not UTF-8, are written as \xNN; those of U+0080 to U+009F, and those
/// that turn the direction of writing or end a line, as \uNNNN.
std::string printable(std::string_view text);

/// The same with newlines and tabs escaped as well: a name from a file in one line of a message.
std::string one_line(std::string_view text);

/// At most the first `most_bytes` of valid UTF-8, none of a character in part.
std::string_view first_bytes(std::string_view text, std::size_t most_bytes);

/// The candidate nearest to `name` by edit distance (two letters in each other's place are one
/// error), if it is near enough to be meant. Names of less than four letters are near to too much.
std::optional<std::string> nearest(std::string_view name, std::span<const std::string> candidates);

/// `text` without spaces and tabs at its ends.
std::string trimmed(std::string_view text);

/// "12.3 GiB", "512 B": three figures and a binary unit.
std::string human_bytes(std::int64_t bytes);

/// "6,738,415,616": digits in threes.
std::string with_commas(std::int64_t number);

/// The shortest decimal that reads back to the same double; "nan" and "inf" become null in JSON
/// lines, so callers test for finiteness first.
std::string round_trip(double value);

}  // namespace finetune::core
