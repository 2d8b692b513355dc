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

/// As parse_json, but Infinity, -Infinity and NaN, which JSON does not have, become these words as
/// strings: whoever needs the number sees that it is none, and others are not stopped by it.
Json parse_python_json(std::string_view text, const std::string& where);

/// `value` as text, indented, with those words as Python writes them.
std::string dump_python_json(const Json& value);

/// Reads and parses a file of at most `limit_bytes`.
Json read_python_json(const std::filesystem::path& path, std::int64_t limit_bytes);

}  // namespace finetune::core
