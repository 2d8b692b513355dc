#pragma once
// SPDX-License-Identifier: Apache-2.0
// What happens to folders, from the temporary one to the removed one. Called
// by one rank at a time.

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/format/layout.hpp"

namespace finetune::checkpoint {

/// Creates `root` if it is missing, and the folders above it.
/// Throws: ErrorKind::create with the system's reason, or if it is not this user's or everybody may
/// write into it: what is written there would be at their mercy.
void make_root(const std::filesystem::path& root, Access access);

/// As make_root for a folder that lies where others write too, such as /tmp: a link, or a folder
/// that anybody but this user may enter, is refused.
void make_private_root(const std::filesystem::path& root);

/// Fails if the file system of `root` has less free than `bytes`. Quotas are not seen here; taking
/// the space finds them. Throws: ErrorKind::io.
void require_space(const std::filesystem::path& root, std::int64_t bytes);

/// Creates in `root`, made if it is missing, a new temporary folder for `step`, after removing what
/// others left. Throws: ErrorKind::create with the system's reason.
std::filesystem::path make_temporary_folder(const std::filesystem::path& root, std::int64_t step,
                                            Access access);

/// Removes what interrupted saves and removals left in `root`; what resists stays.
void remove_leftovers(const std::filesystem::path& root);

/// Creates `path`, writes, syncs and closes. Throws: ErrorKind::create or io.
void write_new_file(const std::filesystem::path& path, std::string_view text, mode_t mode);

/// As write_new_file for the manifest, under another name until it is whole; then syncs `folder`.
void write_manifest_file(const std::filesystem::path& folder, std::string_view text, mode_t mode);

/// Makes the finished `temporary` folder the checkpoint of `step`, durably. A checkpoint of the
/// same step is replaced and then removed; there is no moment without either where the file system
/// can exchange names. Throws: ErrorKind::io.
void publish(const std::filesystem::path& temporary, const std::filesystem::path& root,
             std::int64_t step);

/// Renames the checkpoint of `step` so that it is not taken for one, then removes it.
/// Throws: ErrorKind::io if it cannot be renamed.
void remove_checkpoint(const std::filesystem::path& root, std::int64_t step);

/// Removes a folder with all in it, following no links; problems are ignored.
void remove_quietly(const std::filesystem::path& folder);

/// Steps of all folders in `root` that look like checkpoints, newest first; links do not count.
/// Empty if `root` does not exist. Throws: ErrorKind::input if it cannot be read.
std::vector<std::int64_t> list_steps(const std::filesystem::path& root);

/// A checkpoint that another user could have put there or could change is not gone on from.
/// Throws: ErrorKind::input.
void require_own(const std::filesystem::path& folder);

/// The text of a regular file, links refused, of at most `limit_bytes`. Throws: ErrorKind::input.
std::string read_regular_file(const std::filesystem::path& path, std::int64_t limit_bytes);

/// Bytes of a regular file, links refused. Throws: ErrorKind::input.
std::int64_t regular_file_bytes(const std::filesystem::path& path);

}  // namespace finetune::checkpoint
