#pragma once
// SPDX-License-Identifier: Apache-2.0
// Reading together, so that no byte is read from a file twice.

#include <cstdint>
#include <span>

#include "checkpoint/format/read.hpp"
#include "comm/communicator.hpp"

namespace finetune::checkpoint {

/// Fills the targets of all ranks' parts. Each block that anybody wants is read, and compared with
/// its checksum, by one rank: by whoever alone wants it straight into place; otherwise by one of
/// those who want it, drawn by lot so that the work is even, who hands it to the others. Memory
/// besides the targets is about 64 blocks per rank. Returns the bytes that this rank has read.
///
/// Collective on `world`. Throws: AgreedError of kind input naming file, block and tensor, or io.
std::int64_t read_once(const comm::Communicator& world, const FoundCheckpoint& found,
                       std::span<const ReadPart> parts);

}  // namespace finetune::checkpoint
