#pragma once
// SPDX-License-Identifier: Apache-2.0
// model.safetensors.index.json: which tensor is in which file.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace finetune::weights {

inline constexpr std::int64_t largest_index_bytes = 64 << 20;

/// Tensor name -> file name.
using WeightMap = std::map<std::string, std::string, std::less<>>;

/// Parses an index. Every value is a plain file name (see is_plain_file_name), every tensor is
/// named once. Throws: ErrorKind::input, beginning with `where`.
WeightMap parse_index(std::string_view text, const std::string& where);

}  // namespace finetune::weights
