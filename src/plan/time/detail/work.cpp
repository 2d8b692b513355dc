// SPDX-License-Identifier: Apache-2.0
#include "plan/time/detail/work.hpp"

#include "plan/layout/stages.hpp"
#include "plan/memory/detail/ops_cost.hpp"

namespace finetune::plan {

Work timed(const model::OpWork& of, const Rates& rates) {
  Work work;
  for (const model::MatrixProduct& product : of.products)
    work += rates.products({product.rows, product.columns, product.inner}, product.count,
                           product.is_fp8);
  for (const model::AttentionWork& attention : of.attention)
    work += rates.attention(attention.flops, attention.visible);
  for (const model::MemoryPass& pass : of.passes)
    work += rates.activations(pass.bytes, pass.operations);
  return work;
}

namespace {

StageWork timed(const model::CostTape& tape, const Rates& rates) {
  return {timed(tape.forward_work(), rates), timed(tape.backward_work(), rates),
          timed(tape.again_work(), rates)};
}

}  // namespace

Work MicroBatchWork::total() const {
  Work sum = embedding.forward + embedding.backward + head.forward + head.backward;
  for (const StageWork& block : blocks)
    sum += block.forward + block.backward + block.again;
  return sum;
}

double MicroBatchWork::model_flops() const {
  double sum = head.forward.flops + head.backward.flops;
  for (const StageWork& block : blocks)
    sum += block.forward.flops + block.backward.flops;
  return sum;
}

MicroBatchWork plan_work(const PlanInput& request, const model::ParameterTable& table,
                         const Rates& rates, Passes passes) {
  const OpsCost cost(request, table, passes);
  MicroBatchWork work;
  work.embedding = timed(cost.embedding().tape, rates);
  for (std::int64_t i = 0; i < cost.num_blocks(); ++i) {
    StageWork& block = work.blocks.emplace_back(timed(cost.block(i).tape, rates));
    block.is_recomputed = blocks_of(request).is_recomputed(static_cast<int>(i));
    if (block.is_recomputed) block.again += block.forward;
  }
  work.head = timed(cost.head().tape, rates);
  return work;
}

}  // namespace finetune::plan
