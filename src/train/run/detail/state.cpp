// SPDX-License-Identifier: Apache-2.0
#include "train/run/detail/state.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "core/fault.hpp"
#include "model/device.hpp"
#include "model/gpu_attention.hpp"
#include "model/part.hpp"
#include "model/products.hpp"
#include "plan/layout/stages.hpp"
#include "shard/parallel_ops.hpp"
#include "train/run/stored_parts.hpp"
#include "train/run/tiling.hpp"
#include "train/step/objective.hpp"

namespace finetune::train {
namespace {

std::byte* bytes_at(const at::Tensor& shard, std::int64_t offset) {
  return static_cast<std::byte*>(shard.data_ptr()) + offset * shard.element_size();
}

/// A part of a copy that one thread does.
struct CopyPiece {
  const std::byte* source = nullptr;
  std::byte* target = nullptr;
  std::int64_t bytes = 0;
};

void add_pieces(const std::byte* source, std::byte* target, std::int64_t bytes,
                std::vector<CopyPiece>& pieces) {
  constexpr std::int64_t largest = std::int64_t{4} << 20;  // enough for many threads, few to count
  for (std::int64_t begin = 0; begin < bytes; begin += largest)
    pieces.push_back({source + begin, target + begin, std::min(largest, bytes - begin)});
}

shard::Options shard_options(const StateInput& input, const plan::Plan& plan,
                             const world::World& world) {
  shard::Options options;
  options.numbers = plan.numbers;
  options.sharding = plan.mesh.sharding;
  options.overlap = input.overlap;
  options.prefetch = input.prefetch;
  options.context = input.cp_method;
  options.registers_buffers = input.registers_buffers;
  options.device = model::compute_device(world.device.index);
  options.state_device = input.optimizer.offload ? at::Device(at::kCPU) : options.device;
  return options;
}

}  // namespace

StateInput state_input(const Input& input) {
  return {.family = *input.family,
          .architecture = input.architecture,
          .parameters = input.parameters,
          .optimizer = input.optimizer,
          .overlap = input.parallel.overlap,
          .prefetch = input.parallel.num_prefetched(),
          .cp_method = input.parallel.cp_method,
          .registers_buffers = input.nccl.register_buffers,
          .recomputation = input.train.recomputation(),
          .recomputed_blocks = input.train.recomputed_blocks,
          .offloaded_blocks = input.train.offloaded_blocks,
          .dropout = model::dropout_of(input.adapter),
          .neftune_alpha = input.train.neftune_alpha,
          .ema_decay = input.train.ema_decay,
          .seed = static_cast<std::uint64_t>(input.train.seed),
          .balances_micro_batch = input.model.router_aux_loss_load == RouterLoad::micro_batch};
}

State::State(const StateInput& input, const plan::Plan& plan, const world::World& world,
             const shard::Groups& groups)
    : input_(input),
      model_(input.family.build(input.architecture)),
      table_(plan::settled(plan, model::part_of(input.parameters, groups.part_place()))),
      map_(plan::shards_of(plan, table_)),
      shards_(table_, map_, groups, shard_options(input, plan, world)),
      ops_(shard::make_ops(shards_, model::path_of(plan.numbers.widens),
                           input.recomputation == plan::ActivationCheckpointing::selective
                               ? model::Recompute::cheap
                               : model::Recompute::nothing)),
      optimizer_(input.optimizer.kind->make(input.optimizer, table_, shards_,
                                            {plan.numbers.moments, input.seed})) {
  require_places(plan, groups, world.world);
  if (input.ema_decay > 0) optimizer_->keep_ema(shards_, input.ema_decay);
  if (plan.numbers.scales_loss) loss_scale_.emplace();
  if (input.offloaded_blocks > 0) offload_.emplace(shards_.options().device);
}

Engine State::engine() {
  return {
      .architecture = input_.architecture,
      .model = *model_,
      .ops = *ops_,
      .shards = shards_,
      .blocks =
          plan::blocks_of(input_.recomputation, input_.recomputed_blocks, input_.offloaded_blocks),
      .offload = offload_ ? &*offload_ : nullptr,
      .dropout = input_.dropout,
      .dropout_seed = input_.seed,
      .neftune_alpha = input_.neftune_alpha,
      .balances_micro_batch = input_.balances_micro_batch,
      .objective = input_.architecture.outputs.kind == model::HeadKind::reward ? preference_loss()
                                                                               : next_token_loss()};
}

template <typename Slice>
std::vector<Slice> State::slices(plan::Holders holders, shard::HostCopy::Contents contents) {
  std::vector<Slice> all;
  release();
  for (const int unit : shards_.trained_units()) {
    const std::vector<optim::StateTensor> kept = kept_of(shards_, *optimizer_, unit);
    const std::size_t first_copy = on_host_.size();
    for (const optim::StateTensor& each : kept)
      on_host_.emplace_back(each.values, contents);
    for (plan::StoredRun& part : stored_runs(shards_, unit, kept, holders)) {
      const std::size_t copy = first_copy + part.kept;
      parts_on_host_.push_back({copy, part.offset, part.slice.count});
      all.push_back({kept[part.kept].kind, std::move(part.slice),
                     bytes_at(on_host_[copy].host(), part.offset)});
    }
  }
  return all;
}

std::int64_t State::stored_bytes() const {
  std::int64_t bytes = 0;
  for (const int unit : shards_.trained_units()) {
    const auto runs =
        stored_runs(shards_, unit, kept_of(shards_, *optimizer_, unit), plan::Holders::take_turns);
    for (const plan::StoredRun& part : runs)
      bytes += part.slice.size_bytes();
  }
  return bytes;
}

std::vector<checkpoint::StoredSlice> State::stored() {
  return slices<checkpoint::StoredSlice>(plan::Holders::take_turns,
                                         shard::HostCopy::Contents::wanted);
}

std::vector<checkpoint::StoredSlice> State::snapshot() {
  core::fault::hit("ckpt.snapshot");
  std::vector<checkpoint::StoredSlice> slices = stored();
  // What comes from a GPU is a copy already.
  if (!shards_.options().state_device.is_cpu()) return slices;
  std::int64_t bytes = 0;
  for (const checkpoint::StoredSlice& stored : slices)
    bytes += stored.slice.size_bytes();
  if (!snapshot_.defined() || snapshot_.numel() != bytes) {
    snapshot_ = at::empty({bytes}, at::kByte);
  }
  auto* target = static_cast<std::byte*>(snapshot_.data_ptr());
  std::vector<CopyPiece> pieces;
  for (checkpoint::StoredSlice& stored : slices) {
    add_pieces(stored.data, target, stored.slice.size_bytes(), pieces);
    stored.data = target;
    target += stored.slice.size_bytes();
  }
  at::parallel_for(0, std::ssize(pieces), 1, [&](std::int64_t begin, std::int64_t end) {
    for (const CopyPiece& piece : std::span(pieces).subspan(static_cast<std::size_t>(begin),
                                                            static_cast<std::size_t>(end - begin)))
      std::memcpy(piece.target, piece.source, static_cast<std::size_t>(piece.bytes));
  });
  return slices;
}

std::vector<checkpoint::WantedSlice> State::wanted() {
  return slices<checkpoint::WantedSlice>(plan::Holders::each, shard::HostCopy::Contents::undefined);
}

void State::take_wanted() {
  // Padding is in no part and stays as it is.
  for (const PartOnHost& part : parts_on_host_)
    on_host_[part.copy].write_back(part.first, part.count);
  release();
}

std::string describe_gpu_attention(const Input& input, const comm::Device& device) {
  return model::gpu_attention_text(model::compute_capability(model::compute_device(device.index)),
                                   shard::to_aten(input.numbers().compute),
                                   input.architecture.head_size);
}

}  // namespace finetune::train
