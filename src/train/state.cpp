// SPDX-License-Identifier: Apache-2.0
#include "train/state.hpp"

#include "train/initial_weights.hpp"

namespace finetune::train {
namespace {

std::byte* bytes_at(const at::Tensor& shard, std::int64_t offset) {
  return reinterpret_cast<std::byte*>(shard.data_ptr<float>() + offset);
}

}  // namespace

at::ScalarType to_aten(core::DType dtype) {
  return dtype == core::DType::f32 ? at::kFloat : at::kBFloat16;
}

State::State(const Input& input, const plan::Plan& plan, const comm::Communicator& fsdp)
    : input_(input),
      model_(input.family->build(input.architecture)),
      shards_(input.parameters, plan.shards, fsdp, to_aten(input.numbers().compute)),
      ops_(std::make_unique<model::Ops>(shards_)),
      optimizer_(input.optimizer, input.parameters, shards_) {}

template <typename Slice>
std::vector<Slice> State::slices() {
  std::vector<Slice> all;
  for (int unit = 0; unit < shards_.num_units(); ++unit) {
    for (const plan::ShardSlice& slice : shards_.map().slices(unit, shards_.fsdp().rank())) {
      const core::TensorSlice tensor =
          tensor_slice(input_.parameters.rows[static_cast<std::size_t>(slice.row)], slice);
      all.push_back({kind_master, tensor, bytes_at(shards_.master(unit), slice.shard_offset)});
      all.push_back({kind_exp_avg, tensor, bytes_at(optimizer_.exp_avg(unit), slice.shard_offset)});
      all.push_back(
          {kind_exp_avg_sq, tensor, bytes_at(optimizer_.exp_avg_sq(unit), slice.shard_offset)});
    }
  }
  return all;
}

std::vector<checkpoint::StoredSlice> State::stored() {
  return slices<checkpoint::StoredSlice>();
}

std::vector<checkpoint::WantedSlice> State::wanted() {
  return slices<checkpoint::WantedSlice>();
}

}  // namespace finetune::train
