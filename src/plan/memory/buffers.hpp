#pragma once
// SPDX-License-Identifier: Apache-2.0
// Flat buffers of whole units: how many there are once a step has run, by a ledger over the events
// of a step.

#include <cstdint>

#include "plan/layout/settings.hpp"
#include "plan/layout/shard_map.hpp"
#include "schedule/pass.hpp"

namespace finetune::plan {

/// What decides how many buffers there are at once.
struct BufferRules {
  schedule::Rules schedule;
  std::int64_t accumulation = 1;  ///< passes per step: one's gradients leave while the next runs
  bool sums_in_place = false;     ///< gradients are written straight into their sums
  Alone alone = Alone::keeps;     ///< of a single shard
};

/// What all buffers have together; they are used again and never returned.
struct BufferSizes {
  std::int64_t gathered = 0;        ///< elements of units in the computation's dtype
  std::int64_t gathered_bytes = 0;  ///< of units that are gathered byte by byte
  std::int64_t gradients = 0;       ///< elements
};

/// How a pool of such buffers gives them out. A new one is up to 1/32 larger than asked for: the
/// head then fits into the embedding's, although it also has the final norm.
std::int64_t pooled_size(std::int64_t count);
/// A free buffer is used for what is at least half of it: a block in the embedding's would leave
/// the head without one.
bool is_used_for(std::int64_t free_size, std::int64_t count);

/// Host memory that an offloaded optimizer's units pass through, once a step has run. New weights
/// of units in 8 bits are copied without waiting for others.
struct HostBuffers {
  std::int64_t gradients = 0;  ///< bytes, of fp32
  std::int64_t weights = 0;    ///< bytes, of the computation's dtype
};
HostBuffers count_host_buffers(const ShardMap& shards, std::int64_t compute_bytes);

/// What libtorch takes for a tensor of so many bytes in pinned memory, which it keeps for the next
/// of this size.
std::int64_t pinned_bytes(std::int64_t bytes);

/// Pieces of host memory in which what offloaded blocks keep lies: large ones, because the last of
/// a block is a power of two.
inline constexpr std::int64_t offloaded_piece_bytes = std::int64_t{32} << 20;
/// Host memory for one block that keeps `bytes`.
std::int64_t offloaded_host_bytes(std::int64_t bytes);

/// Elements of this rank's shards whose gradient sums are there at once: those of all trained
/// units, or where these are updated in backward, of the few that wait for it.
std::int64_t count_sums(const ShardMap& shards, const schedule::Stages& stages,
                        const schedule::Rules& rules);

BufferSizes count_buffers(const ShardMap& shards, const schedule::Stages& stages,
                          const BufferRules& rules);

}  // namespace finetune::plan
