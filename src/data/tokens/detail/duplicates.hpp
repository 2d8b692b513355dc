#pragma once
// SPDX-License-Identifier: Apache-2.0
// Samples that occur more than once, whichever ranks read them.

#include <cstdint>

#include "comm/communicator.hpp"
#include "core/hash.hpp"
#include "data/tokens/detail/spool.hpp"
#include "data/tokens/report.hpp"

namespace finetune::data {

/// Samples whose digest an earlier sample has. `digests` are those of samples first_index,
/// first_index + 1, ... of this rank. Each digest is looked at by one rank, in as many passes over
/// all as it takes for none to hold many more than `most_at_once`; memory: 48 bytes for each of
/// those. Collective on `world`. The result is the same on all ranks.
Count count_duplicates(const comm::Communicator& world, const Spool<core::Digest>& digests,
                       std::int64_t first_index, std::int64_t most_at_once = std::int64_t{1} << 22);

}  // namespace finetune::data
