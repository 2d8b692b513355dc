#pragma once
// SPDX-License-Identifier: Apache-2.0
// What memory was held while steps were profiled, small enough to be drawn.

#include <string>

#include "trace/chrome_trace.hpp"

namespace finetune::trace {

/// The counters "memory" of a trace as JSON: "rank", "first_step", "last_step", "at_s" from the
/// first moment on, and "mib" with as many values by use. Of many moments that lie together it
/// keeps the one in which most was held. Empty without counters.
std::string memory_timeline(const RankTrace& trace);

/// "memory.steps-9-12.json", in the folder of the traces.
std::string timeline_name(const RankTrace& trace);

}  // namespace finetune::trace
