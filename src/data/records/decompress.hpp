#pragma once
// SPDX-License-Identifier: Apache-2.0
// Compressed data files: gzip and zstd, opened as if they were not.

#include <filesystem>

#include "data/records/detail/plain_file.hpp"

namespace finetune::data {

/// Opens `path` to be read at any place. A gzip or zstd file (known by its first bytes, whatever it
/// is called) is decompressed first.
///
/// Samples are read in any order and by all ranks, so the text must lie somewhere: a file in
/// $TMPDIR (else /tmp) that all processes of a node share. The first one to come writes it, the
/// others wait for its lock, the last one to finish removes it; what a killed run left is used
/// again if it is of the same file, else removed. So a node holds each file that is open once,
/// however many ranks it has. Several smaller files are decompressed by several ranks at the same
/// time, one large one is not.
///
/// Throws: ErrorKind::input for a file that is damaged, truncated, or expands beyond 64 MiB by more
/// than 250 times, which text never does; ErrorKind::io if there is no room.
PlainFile open_plain(const std::filesystem::path& path);

}  // namespace finetune::data
