#pragma once
// SPDX-License-Identifier: Apache-2.0
// JSON that others wrote, read with a depth limit and errors that name file and line.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace finetune::core {

using Json = nlohmann::json;

/// Parses `text`. `where` (a file, or file:line) begins every error message; `first_line` is the
/// line number of the text's first line, so that JSONL errors name the file's line.
/// Refuses: invalid UTF-8, nesting deeper than 64, duplicate keys, more than `most_values` values
/// (a document takes up to 30 times the memory of a text made for that), anything after the value.
/// Throws: ErrorKind::input.
Json parse_json(std::string_view text, const std::string& where, std::int64_t first_line = 1,
                std::int64_t most_values = 1'000'000);

/// Reads and parses a file of at most `limit_bytes`.
Json read_json(const std::filesystem::path& path, std::int64_t limit_bytes);

}  // namespace finetune::core
