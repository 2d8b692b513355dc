#pragma once
// SPDX-License-Identifier: Apache-2.0
// JSON as Python's json module writes it: with numbers that are not finite.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "core/json.hpp"

namespace finetune::core {

/// Of a model's config.json: lists of a quantisation's modules make some long.
inline constexpr std::int64_t largest_config_bytes = std::int64_t{16} << 20;

/// As parse_json, but Infinity, -Infinity and NaN, which JSON does not have, become strings that
/// begin with an invisible mark: whoever needs the number sees that it is none, others are not
/// stopped by it, and no text is taken for them. `not_finite_word` reads both.
Json parse_python_json(std::string_view text, const std::string& where);

/// "Infinity", "-Infinity" or "NaN" if `value` is that word, bare or as a text, else "".
std::string_view not_finite_word(const Json& value);

/// `value` as text, indented: bare words that were read are written bare, texts as texts.
std::string dump_python_json(const Json& value);

/// Reads and parses a file of at most `limit_bytes`.
Json read_python_json(const std::filesystem::path& path, std::int64_t limit_bytes);

}  // namespace finetune::core
