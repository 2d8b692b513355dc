#pragma once
// SPDX-License-Identifier: Apache-2.0
// Samples that occur more than once, whichever ranks read them.

#include <cstdint>
#include <span>

#include "comm/communicator.hpp"
#include "core/hash.hpp"
#include "data/tokens/report.hpp"

namespace finetune::data {

/// Samples whose digest an earlier sample has. `digests` are those of samples first_index,
/// first_index + 1, ... of this rank. Each digest is looked at by one rank; memory: 24 bytes a
/// sample of this rank. Collective on `world`. The result is the same on all ranks.
Count count_duplicates(const comm::Communicator& world, std::span<const core::Digest> digests,
                       std::int64_t first_index);

}  // namespace finetune::data
