// SPDX-License-Identifier: Apache-2.0
#include "plan/memory/detail/ops_cost.hpp"

#include "model/block.hpp"
#include "model/layout.hpp"

namespace finetune::plan {
namespace {

model::CostSettings settings_of(const PlanInput& request, Passes passes) {
  const bool is_selective = request.activation_checkpointing == ActivationCheckpointing::selective;
  return {.compute = request.numbers.compute,
          .is_composed = passes != Passes::fused,
          .has_norms = passes == Passes::operations,
          .on_gpu = request.on_gpu,
          .recompute = is_selective ? model::Recompute::cheap : model::Recompute::nothing,
          .dropout = request.adapter_dropout,
          .fp8 = request.numbers.fp8,
          .share = share_of(request.parallel)};
}

model::KeyTravel key_travel(ContextMethod method) {
  return method == ContextMethod::ring     ? model::KeyTravel::ring
         : method == ContextMethod::gather ? model::KeyTravel::gather
                                           : model::KeyTravel::automatic;
}

std::int64_t share(std::int64_t num, std::int64_t ranks) {
  return (num + ranks - 1) / ranks;
}

}  // namespace

model::RankShare share_of(const ParallelSettings& parallel) {
  return {.place = {.tp = parallel.num_tp(),
                    .i_tp = parallel.num_tp() - 1,
                    .ep = parallel.num_ep(),
                    .i_ep = parallel.num_ep() - 1},
          .cp = parallel.num_cp(),
          .keys = key_travel(parallel.cp_method)};
}

std::int64_t tokens_of(const PlanInput& request) {
  return request.micro_batch * share(request.max_seq_length, request.parallel.num_cp());
}

Passes own_passes(const PlanInput& request) {
  if (request.on_gpu && !request.has_gpu_kernels) return Passes::operations;
  return request.numbers.compute == core::DType::f16 ? Passes::composed : Passes::fused;
}

OpsCost::OpsCost(const PlanInput& request, const model::ParameterTable& table, Passes passes)
    : request_(request),
      own_table_(table.decoder.blocks.empty() ? model::part_of(model::lay_out(request.architecture),
                                                               share_of(request.parallel).place)
                                              : model::ParameterTable{}),
      table_(table.decoder.blocks.empty() ? own_table_ : table),
      settings_(settings_of(request, passes)),
      sides_(model::lay_out_sides(request.architecture)),
      tokens_(tokens_of(request)) {}

model::CostOps OpsCost::ops() const {
  return {table_, settings_};
}

model::TensorSize OpsCost::activations(model::CostOps& ops) const {
  return ops.tensor(share(tokens_, request_.parallel.num_tp()), request_.architecture.d_model);
}

StageCost OpsCost::embedding() const {
  model::CostOps ops = this->ops();
  const model::TensorSize ids = {.rows = tokens_, .columns = 1};
  const model::TensorSize x = ops.embedding(ids, table_.decoder.embedding);
  if (sides_.looked_up.exists()) ops.embedding(ids, table_.decoder.layer_embedding);
  return {ops.tape(), ids, x};
}

StageCost OpsCost::block(std::int64_t i_layer) const {
  model::CostOps ops = this->ops();
  const model::TensorSize x = activations(ops);
  const model::SequenceSize sequence = {request_.micro_batch, request_.max_seq_length,
                                        std::min(request_.sample_tokens, request_.max_seq_length)};
  model::Sides<model::TensorSize> sides{.layout = sides_.block(i_layer)};
  for (const model::Side side : model::all_sides)
    if (const model::SideSlice& slice = sides.layout.read[side]; slice.exists())
      sides.read[side] = ops.tensor(tokens_, slice.size);
  const model::TensorSize y = model::decoder_block(
      ops, request_.architecture, table_.decoder.blocks[static_cast<std::size_t>(i_layer)], x,
      sequence, i_layer, sides);
  return {ops.tape(), x, y};
}

std::int64_t OpsCost::side_bytes(int slot) const {
  return ops().tensor(tokens_, sides_.channels[static_cast<std::size_t>(slot)]).bytes;
}

StageCost OpsCost::head() const {
  model::CostOps ops = this->ops();
  const model::TensorSize x = activations(ops);
  const model::TensorSize normed =
      model::final_norm(ops, request_.architecture, table_.decoder.final_norm, x);
  const model::TensorSize of_tokens = {.rows = tokens_, .columns = 1};
  model::TensorSize d_normed = normed;
  ops.pull_back_label_scores(normed, of_tokens, table_.decoder.head, of_tokens, d_normed);
  return {ops.tape(), x, {}};
}

}  // namespace finetune::plan
