#pragma once
// SPDX-License-Identifier: Apache-2.0
// What libtorch's allocator hands out in a step, for comparison with the plan.

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "base/initial_weights.hpp"
#include "metrics/memory.hpp"
#include "model/family.hpp"
#include "model/model.hpp"
#include "model/part.hpp"
#include "model/products.hpp"
#include "optim/loss_scale.hpp"
#include "optimizers/adamw/adamw.hpp"
#include "plan/plan.hpp"
#include "shard/parallel_ops.hpp"
#include "support/ranks.hpp"
#include "train/step/passes.hpp"
#include "train/step/step.hpp"
#include "world/world.hpp"

namespace finetune::tests {

/// Micro-batches whose tokens are all trained.
inline data::StepData step_data(const plan::PlanInput& request, const plan::Plan& plan) {
  const std::int64_t tokens = request.micro_batch * request.max_seq_length;
  data::MicroBatch batch{
      .batch = request.micro_batch, .length = request.max_seq_length, .ids = {}, .labels = {}};
  for (std::int64_t i = 0; i < tokens; ++i) {
    batch.ids.push_back(i * i % 199);
    batch.labels.push_back(i * 7 % 199);
  }
  const std::int64_t accumulation = plan.batch.accumulation;
  data::StepData data;
  data.num_samples = request.global_batch;
  data.num_tokens = data.num_trained_tokens =
      tokens * plan.mesh.size(plan::groups::batch) * accumulation;
  for (std::int64_t i = 0; i < accumulation; ++i)
    data.micro_steps.emplace_back(batch);
  return data;
}

/// The most bytes that tensors take in the second step, by which every buffer is there; of the rank
/// that has most. `table` is the family's, in the plan's units.
inline std::int64_t measure(const model::ModelFamily& family, const plan::PlanInput& request,
                            const plan::Plan& plan, const model::ParameterTable& table,
                            const base::WeightSource& weights) {
  const std::int64_t before = metrics::tensor_bytes().live;
  const auto model = family.build(request.architecture);
  const world::World world = world::make(tests::mpi(), plan);
  const shard::Groups groups =
      shard::make_groups(world, request.parallel.overlap, request.parallel.alone);
  shard::Options options;
  options.numbers = request.numbers;
  options.sharding = plan.mesh.sharding;
  options.overlap = request.parallel.overlap;
  options.context = request.parallel.cp_method;
  const model::ParameterTable own = model::part_of(table, groups.part_place());
  const plan::ShardMap map = plan::shards_of(plan, own);
  shard::ModelShards shards(own, map, groups, options);
  using enum plan::ActivationCheckpointing;
  const auto ops =
      shard::make_ops(shards, model::path_for(request.numbers.compute),
                      request.activation_checkpointing == selective ? model::Recompute::cheap
                                                                    : model::Recompute::nothing);
  optimizers::adamw::AdamW optimizer({}, own, shards, shard::to_aten(request.numbers.moments));
  base::load_weights(weights, shards);
  base::set_magnitudes(shards);
  train::Engine engine{
      request.architecture, *model, *ops, shards,
      request.activation_checkpointing == full ? train::Blocks::recomputed : train::Blocks::kept};
  engine.dropout = request.adapter_dropout;
  optim::LossScale loss_scale;
  const data::StepData data = step_data(request, plan);
  for (std::int64_t step = 0; step < 2; ++step) {
    metrics::reset_peak();
    train::run_step(engine, world.loss, data, optimizer,
                    {.step = step,
                     .lr = 1e-4,
                     .loss_scale = request.numbers.scales_loss ? &loss_scale : nullptr});
  }
  return world.world.all_reduce(metrics::tensor_bytes().peak - before, comm::Reduce::max);
}

inline void expect_as_planned(const plan::Plan& plan, std::int64_t measured) {
  const double ratio = static_cast<double>(measured) / static_cast<double>(plan.tensor_bytes());
  testing::Test::RecordProperty("measured_of_planned", std::to_string(ratio));
  EXPECT_NEAR(ratio, 1, 0.05) << measured << " bytes measured\n" << plan::to_string(plan);
}

}  // namespace finetune::tests
