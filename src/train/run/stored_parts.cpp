// SPDX-License-Identifier: Apache-2.0
#include "train/run/stored_parts.hpp"

#include "core/error.hpp"

namespace finetune::train {
namespace {

core::DType dtype_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return core::DType::f32;
    case at::kBFloat16:
      return core::DType::bf16;
    case at::kByte:
      return core::DType::u8;
    default:
      core::check(false, "weights and moments are fp32, bf16 or bytes");
      return {};
  }
}

}  // namespace

std::vector<optim::StateTensor> kept_of(const shard::ModelShards& shards,
                                        const optim::Optimizer& optimizer, int unit) {
  std::vector<optim::StateTensor> all = {{kind_master, shards.master(unit)}};
  for (optim::StateTensor& kept : optimizer.kept(unit))
    all.push_back(std::move(kept));
  return all;
}

std::vector<plan::StoredRun> stored_runs(const shard::ModelShards& shards, int unit,
                                         const std::vector<optim::StateTensor>& kept,
                                         plan::Holders holders) {
  std::vector<plan::OptimizerState> states;
  for (const optim::StateTensor& each : kept)
    states.push_back(
        {.kind = each.kind, .dtype = dtype_of(each.values), .block = each.block, .of = each.of});
  const comm::Communicator& copies = shards.groups().dp_replicate->communicator();
  const plan::HolderPlace place = {.part = shards.groups().part_place(),
                                   .i_shard = shards.shard_of(unit),
                                   .i_copy = copies.rank(),
                                   .num_copies = copies.size()};
  return plan::stored_runs(shards.table(), shards.map(), unit, place, states, holders);
}

}  // namespace finetune::train
