#pragma once
// SPDX-License-Identifier: Apache-2.0
// The cores of a rank: which, of which NUMA node, and who else computes on them.

#include <filesystem>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "preflight/detail/facts.hpp"

namespace finetune::preflight {

/// "0-3,8" of 0, 1, 2, 3, 8: as core::parse_list reads it.
std::string list_text(const std::vector<int>& numbers);

/// What this process may use. `root` holds proc/ and sys/; another than "/" is for tests, and so
/// are `cores`, which are those of this process if empty.
CpuFacts cpus_here(int threads, const std::filesystem::path& root = "/",
                   std::vector<int> cores = {});

/// How much of each core other processes take, while all ranks of the node compute for `seconds`:
/// what the system says of the core, less what the ranks have used of it. Only what is worth
/// telling (from 5 %), and on the first rank of `node` alone. Collective on `node`.
std::vector<CoreLoad> foreign_loads(const comm::Communicator& node, double seconds);

/// The same as arithmetic: seconds that a core was busy, and those of them that the ranks used.
std::vector<CoreLoad> foreign_loads(const std::vector<double>& busy_s,
                                    const std::vector<double>& own_s, double seconds);

}  // namespace finetune::preflight
