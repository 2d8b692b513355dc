#pragma once
// SPDX-License-Identifier: Apache-2.0
// Reads what the profiler wrote of memory (trace/memory_timeline.hpp).

#include <filesystem>
#include <optional>

#include "report/run_history.hpp"

namespace finetune::report::detail {

/// The one that was written last in a folder of profiles; nothing where there is none, or it cannot
/// be read.
std::optional<MemoryTimeline> read_timeline(const std::filesystem::path& folder);

}  // namespace finetune::report::detail
