#pragma once
// SPDX-License-Identifier: Apache-2.0
// A hash of the frozen weights that an adapter is trained on.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/dtype.hpp"
#include "model/parameter_table.hpp"
#include "shard/model_shards.hpp"
#include "weights/model_files.hpp"

namespace finetune::base {

/// Of the frozen weights of all ranks of fsdp and tp, the same for any number of them: of what they
/// are kept as, so it differs between dtypes. Empty if nothing is frozen. Collective on both.
std::string frozen_hash(const shard::ModelShards& shards);

/// What it would be if the run computed in `compute`: one that computes in it, or in fp32, knows.
std::string frozen_hash(const shard::ModelShards& shards, core::DType compute);

/// The same number from the files, for a run that computes in `compute`: by one process, a tensor
/// at a time. Throws: ErrorKind::input, ErrorKind::io.
std::string frozen_hash(const weights::ModelFiles& files, const model::ParameterTable& table,
                        core::DType compute);

/// The term of a whole plane of a tensor, which the numbers above sum up.
std::uint64_t sum_of_plane(int row, int plane, core::DType dtype, std::span<const std::byte> bytes);

}  // namespace finetune::base
