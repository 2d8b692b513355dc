// SPDX-License-Identifier: Apache-2.0
// Twenty AdamW steps against torch: losses, gradient norms and final weights, on any number of
// ranks.

#include <gtest/gtest.h>

#include "core/json.hpp"
#include "modules/golden_steps.hpp"
#include "optim/schedule.hpp"
#include "optimizers/adamw/adamw.hpp"
#include "registry.hpp"
#include "support/golden.hpp"
#include "support/mesh.hpp"
#include "support/ranks.hpp"
#include "train/infer/loaded_model.hpp"
#include "train/step/step.hpp"

namespace finetune::trajectory_test {
namespace {

/// How the ranks share the work: `dp_shard` of them (0: all) have one copy of the model.
struct Sharing {
  const char* name;
  std::int64_t rows_a_pass;
  plan::Sharding sharding;
  int dp_shard;
  plan::Determinism determinism = plan::Determinism::run;
};

using plan::Sharding;
// Micro-batches of two rows, and of one: more passes or more ranks, the same numbers.
const Sharing sharings[] = {
    {"FullShardByTwoRows", 2, Sharding::full_shard, 0},
    {"FullShardByRow", 1, Sharding::full_shard, 0},
    {"FullShardInFixedPoint", 1, Sharding::full_shard, 0, plan::Determinism::topology},
    {"ShardGradOp", 1, Sharding::shard_grad_op, 0},
    {"NoShard", 1, Sharding::no_shard, 1},
    {"HybridShard", 1, Sharding::hybrid_shard, 2}};

class Trajectory : public testing::TestWithParam<Sharing> {};

TEST_P(Trajectory, IsThatOfTorch) {
  const core::Json golden = core::read_json(tests::golden("train/full.json"), 1 << 20);
  const auto files = weights::ModelFiles::open(tests::golden("train/data.safetensors"));
  const auto& world = tests::world();
  const int dp_shard = GetParam().dp_shard == 0 ? world.size() : GetParam().dp_shard;
  if (world.size() % dp_shard != 0) GTEST_SKIP() << "needs a multiple of " << dp_shard << " ranks";
  const world::World mesh = tests::mesh_of(world, dp_shard);
  shard::Options options{.numbers = {}, .sharding = GetParam().sharding};
  options.numbers.compute = core::DType::f32;
  options.numbers.determinism = GetParam().determinism;
  train::LoadedModel loaded(tests::golden("models/llama"), modules::registry(),
                            shard::make_groups(mesh, true), options);
  const auto engine = loaded.engine();
  optim::OptimizerSettings settings;
  settings.lr = 1e-3;
  settings.min_lr_ratio = 0.1;
  settings.warmup_steps = 4;
  settings.weight_decay = 0.1;
  optimizers::adamw::AdamW optimizer(settings, loaded.parameters(), engine.shards);
  const optim::Schedule schedule(settings, 20);

  for (std::int64_t step = 0; step < 20; ++step) {
    const core::Json& expected = golden["log"][static_cast<std::size_t>(step)];
    EXPECT_NEAR(schedule.lr(step), expected["lr"].get<double>(), 1e-12);
    const auto result = train::run_step(
        engine, world, tests::step_data(files, step, GetParam().rows_a_pass), optimizer,
        {.step = step, .lr = schedule.lr(step), .max_grad_norm = settings.max_grad_norm});
    EXPECT_NEAR(result.loss, expected["loss"].get<double>(), 1e-5) << "step " << step;
    const double norm = expected["grad_norm"].get<double>();
    EXPECT_NEAR(result.grad_norm, norm, 1e-5 * norm) << "step " << step;
  }

  const auto final_weights =
      weights::ModelFiles::open(tests::golden("train/full_final.safetensors"));
  for (int unit = 0; unit < engine.shards.num_units(); ++unit) {
    const at::Tensor master = engine.shards.master(unit);
    for (const auto& slice : engine.shards.map().slices(unit, mesh.fsdp.rank())) {
      const std::string& name = loaded.parameters().rows[static_cast<std::size_t>(slice.row)].name;
      const auto expected =
          tests::read_golden<float>(final_weights, name, slice.tensor_offset, slice.count);
      const std::span<const float> got(master.data_ptr<float>() + slice.shard_offset,
                                       expected.size());
      EXPECT_LT(tests::largest_difference(got, expected), 2e-5) << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sharings, Trajectory, testing::ValuesIn(sharings),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace finetune::trajectory_test
