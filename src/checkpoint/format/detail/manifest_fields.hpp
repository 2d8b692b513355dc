#pragma once
// SPDX-License-Identifier: Apache-2.0
// The field names of MANIFEST.json, as its writer and its reader spell them.

#include <cstdint>
#include <string_view>

namespace finetune::checkpoint::field {

inline constexpr std::string_view format = "format";
inline constexpr std::string_view version = "version";
inline constexpr std::string_view step = "step";
inline constexpr std::string_view world_size = "world_size";
inline constexpr std::string_view block_bytes = "block_bytes";
inline constexpr std::string_view created_by = "created_by";
inline constexpr std::string_view state_bytes = "state_bytes";
inline constexpr std::string_view state_fingerprint = "state_fingerprint";
inline constexpr std::string_view files = "files";
inline constexpr std::string_view tensors = "tensors";
inline constexpr std::string_view boxes = "boxes";  // not in version 1
inline constexpr std::string_view slices = "slices";
inline constexpr std::string_view fingerprint = "fingerprint";

inline constexpr std::string_view format_value = "finetune checkpoint";
inline constexpr std::int64_t version_value = 2;
inline constexpr std::int64_t first_version = 1;  ///< that is still read

}  // namespace finetune::checkpoint::field
