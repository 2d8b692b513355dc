#pragma once
// SPDX-License-Identifier: Apache-2.0
// Flat buffers of whole units: how many there are once a step has run, found by replaying the order
// in which a step opens and closes its units.

#include <cstdint>

#include "plan/mesh.hpp"
#include "plan/shard_map.hpp"

namespace finetune::plan {

/// What decides how units are opened.
struct BufferRules {
  Sharding sharding = Sharding::full_shard;
  bool overlaps = true;  ///< the next unit is gathered, the last gradient reduced meanwhile
  std::int64_t accumulation = 1;  ///< micro-steps a step: one's gradients leave while the next runs
  std::int64_t num_layers = 1;
  bool tied_embeddings = false;  ///< the head reads the first unit
  bool sums_in_place = false;    ///< gradients are written straight into their sums
};

/// Elements of all buffers, which are used again and never returned.
struct BufferElements {
  std::int64_t gathered = 0;
  std::int64_t gradients = 0;
};

BufferElements count_buffers(const ShardMap& shards, const BufferRules& rules);

}  // namespace finetune::plan
