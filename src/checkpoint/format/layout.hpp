#pragma once
// SPDX-License-Identifier: Apache-2.0
// Names of the folders, files, kinds and tensors of a checkpoint, and which of them are accepted.

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace finetune::checkpoint {

inline constexpr std::string_view manifest_name = "MANIFEST.json";
inline constexpr std::string_view state_name = "state.json";
/// Prefixes of folders that are being written or removed; any process that finds one may delete it.
inline constexpr std::string_view temporary_prefix = ".tmp-step-";
inline constexpr std::string_view deleted_prefix = ".del-step-";

inline constexpr std::int64_t largest_step = 9'999'999'999;

/// Who shares a file: all ranks of a node, or no ranks.
enum class Files { node, rank };

/// Where the folder of a checkpoint is: on a file system that all nodes share, or once on a disk of
/// each node.
enum class Level { shared, local };

/// Who may read a checkpoint. Nobody but its owner may ever write.
enum class Access { owner, group, all };
mode_t folder_mode(Access access);
mode_t file_mode(Access access);

/// "step-0000000200".
std::string folder_name(std::int64_t step);

/// The inverse of folder_name; nothing for any other name.
std::optional<std::int64_t> step_of(std::string_view folder_name);

/// "node00003.h5" or "rank00003.h5".
std::string file_name(Files files, std::int64_t index);

/// Whether a manifest may name this file: what file_name makes, so never a path.
bool is_file_name(std::string_view name);

/// Lower-case letters, digits and underscores, at most 64.
bool is_kind(std::string_view name);

/// What Hugging Face files call tensors: letters, digits and ". _ - : +", not starting with a dot,
/// at most 1024 bytes. Part of an HDF5 path, so never with a slash.
bool is_tensor_name(std::string_view name);

}  // namespace finetune::checkpoint
