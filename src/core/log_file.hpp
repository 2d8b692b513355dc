#pragma once
// SPDX-License-Identifier: Apache-2.0
// The file that has what a run prints: finetune.log.

#include <sys/types.h>

#include <filesystem>
#include <string_view>

namespace finetune::log {

/// From now on remembers what it prints, for the file that `copy_to` will name.
void remember();

/// As a process that has printed nothing: what was remembered is forgotten, the file is closed, and
/// this process speaks for all. For processes in which another run begins.
void forget();

/// Appends to `path` what was remembered, and from now on whatever this process prints, each text
/// with its time. Links are not followed. A file that cannot be written is a warning, once, and
/// printing goes on without it.
void copy_to(const std::filesystem::path& path, mode_t mode);

/// From now on appends errors of this process to `path`, which another process has made and writes.
/// One that is not there is left alone.
void copy_errors_to(const std::filesystem::path& path);

/// One line for the file alone: what a terminal shows in another way.
void note(std::string_view line);

}  // namespace finetune::log
