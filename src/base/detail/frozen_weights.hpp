#pragma once
// SPDX-License-Identifier: Apache-2.0
// Filling the shards of frozen units: as they are in files, or quantised on the way.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "comm/communicator.hpp"
#include "model/parameter_table.hpp"
#include "shard/model_shards.hpp"

namespace finetune::base {

/// Where weights come from. Each call gives elements [first, first + target's) of something.
struct WeightSource {
  /// fp32 values of a logical tensor.
  std::function<void(int row, std::int64_t first, std::span<float> target)> values;
  /// Elements of a plane of a tensor that is packed in the source, in the plane's dtype.
  std::function<void(int row, int plane, std::int64_t first, std::span<std::byte> target)> plane =
      {};
};

/// Fills this rank's shards of the frozen units; what is to be in NF4 or 8 bits and is not so in
/// the source is quantised, of which no more than a few MiB are in memory as fp32. The result does
/// not depend on the number of ranks. Collective on fsdp. Throws: AgreedError with what the source
/// threw on some rank of fsdp.
void load_frozen(const WeightSource& source, shard::ModelShards& shards);

}  // namespace finetune::base
