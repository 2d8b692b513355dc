#pragma once
// SPDX-License-Identifier: Apache-2.0
// A hash of the frozen weights that an adapter is trained on.

#include <string>

#include "core/dtype.hpp"
#include "model/parameter_table.hpp"
#include "shard/model_shards.hpp"
#include "weights/model_files.hpp"

namespace finetune::base {

/// Of the frozen weights of all ranks of fsdp, the same for any number of them: of what they are
/// kept as, so it differs between dtypes. Empty if nothing is frozen. Collective on fsdp.
std::string frozen_hash(const shard::ModelShards& shards);

/// What it would be if the run computed in `compute`: one that computes in it, or in fp32, knows.
std::string frozen_hash(const shard::ModelShards& shards, core::DType compute);

/// The same number from the files, for a run that computes in `compute`: by one process, a tensor
/// at a time. Throws: ErrorKind::input, ErrorKind::io.
std::string frozen_hash(const weights::ModelFiles& files, const model::ParameterTable& table,
                        core::DType compute);

}  // namespace finetune::base
