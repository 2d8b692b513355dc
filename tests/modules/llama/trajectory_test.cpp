// SPDX-License-Identifier: Apache-2.0
// Twenty AdamW steps against torch: losses, gradient norms and final weights, on any number of
// ranks, whatever they share.

#include <gtest/gtest.h>

#include "modules/adapters/golden_trajectory.hpp"

namespace finetune::trajectory_test {
namespace {

/// How the ranks share the work: `dp_shard` of them (0: as many as are left) have one copy of the
/// model, or of their parts of it.
struct Sharing {
  const char* name;
  std::int64_t rows_a_pass;
  plan::Sharding sharding;
  int dp_shard;
  plan::Determinism determinism = plan::Determinism::run;
  tests::Parts parts = {};
  plan::ContextMethod context = plan::ContextMethod::automatic;
};

using plan::ContextMethod;
using plan::Sharding;

Sharing with_parts(const char* name, const tests::Parts& parts,
                   ContextMethod context = ContextMethod::automatic, int dp_shard = 0) {
  return {.name = name,
          .rows_a_pass = 1,
          .sharding = dp_shard == 0 ? Sharding::full_shard : Sharding::no_shard,
          .dp_shard = dp_shard,
          .parts = parts,
          .context = context};
}

// Micro-batches of two rows, and of one: more passes or more ranks, the same numbers.
const Sharing sharings[] = {
    {"FullShardByTwoRows", 2, Sharding::full_shard, 0},
    {"FullShardByRow", 1, Sharding::full_shard, 0},
    {"FullShardInFixedPoint", 1, Sharding::full_shard, 0, plan::Determinism::topology},
    {"ShardGradOp", 1, Sharding::shard_grad_op, 0},
    {"NoShard", 1, Sharding::no_shard, 1},
    {"HybridShard", 1, Sharding::hybrid_shard, 2},
    with_parts("Tp2", {.tp = 2}),
    with_parts("Tp4", {.tp = 4}),
    with_parts("CopiesOfTp2", {.tp = 2}, ContextMethod::automatic, 1),
    with_parts("Cp2", {.cp = 2}),
    with_parts("Cp3", {.cp = 3}),
    with_parts("Cp4ByRing", {.cp = 4}, ContextMethod::ring),
    with_parts("Cp2Tp2", {.cp = 2, .tp = 2})};

class Trajectory : public testing::TestWithParam<Sharing> {};

TEST_P(Trajectory, IsThatOfTorch) {
  const auto& world = tests::world();
  const Sharing& sharing = GetParam();
  if (!tests::can_have(world.size(), sharing.dp_shard, sharing.parts))
    GTEST_SKIP() << "needs another number of ranks";
  const world::World mesh = tests::mesh_of(world, sharing.dp_shard, sharing.parts);
  tests::AdaptedModel model(
      {.adapter = {}, .start = {}}, mesh,
      {.numbers = {.compute = core::DType::f32, .determinism = sharing.determinism},
       .sharding = sharing.sharding,
       .context = sharing.context});
  EXPECT_EQ(tests::expect_golden_trajectory(model, mesh, "full", "full_final.safetensors",
                                            sharing.rows_a_pass),
            model.whole.num_parameters());
}

TEST(Schedule, IsThatOfTorch) {
  const core::Json golden = core::read_json(tests::golden("train/full.json"), 1 << 20);
  for (std::int64_t step = 0; step < 20; ++step)
    EXPECT_NEAR(tests::golden_run().lr(step),
                golden["log"][static_cast<std::size_t>(step)]["lr"].get<double>(), 1e-12);
}

INSTANTIATE_TEST_SUITE_P(Sharings, Trajectory, testing::ValuesIn(sharings),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace finetune::trajectory_test
