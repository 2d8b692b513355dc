// SPDX-License-Identifier: Apache-2.0
// The memory plan against what libtorch's allocator hands out in a step.
#include <gtest/gtest.h>

#include "metrics/memory.hpp"
#include "models/llama/llama.hpp"
#include "optim/adamw.hpp"
#include "plan/bucket.hpp"
#include "plan/memory.hpp"
#include "shard/options.hpp"
#include "support/ranks.hpp"
#include "train/initial_weights.hpp"
#include "train/state.hpp"
#include "train/step.hpp"

namespace finetune::train {
namespace {

/// What a run is: a plan's request, and the words GoogleTest prints for it.
struct Case {
  const char* name;
  std::int64_t num_layers;
  std::int64_t vocab_size;
  std::int64_t micro_batch;
  core::DType compute;
  bool tied = false;
  const char* sharding = "FULL_SHARD";
  plan::Determinism determinism = plan::Determinism::off;
  plan::ActivationCheckpointing checkpointing = plan::ActivationCheckpointing::none;
  const char* bucket = "BLOCK";
  bool overlap = true;
};

void PrintTo(const Case& run, std::ostream* out) {
  *out << run.name;
}

model::Architecture architecture(const Case& run) {
  model::Architecture a;
  a.family = "llama";
  a.num_layers = run.num_layers;
  a.vocab_size = run.vocab_size;
  a.d_model = 128;
  a.num_heads = 4;
  a.num_kv_heads = 2;
  a.head_size = 32;
  a.d_ff = 352;
  a.max_positions = 256;
  a.tied_embeddings = run.tied;
  return a;
}

plan::Request request(const Case& run) {
  plan::Request request;
  request.architecture = architecture(run);
  request.parallel.sharding = run.sharding;
  request.parallel.bucket = run.bucket;
  request.parallel.overlap = run.overlap;
  request.numbers.determinism = run.determinism;
  request.activation_checkpointing = run.checkpointing;
  request.numbers.compute = run.compute;
  const std::int64_t ranks = tests::world().size();
  request.ranks = {.world_size = ranks, .ranks_per_node = ranks};
  request.global_batch = run.micro_batch * ranks;
  request.micro_batch = run.micro_batch;
  request.max_seq_length = 256;
  return request;
}

/// A micro-batch whose tokens are all trained.
data::StepData step_data(const plan::Request& request) {
  const std::int64_t tokens = request.micro_batch * request.max_seq_length;
  data::MicroBatch batch{
      .batch = request.micro_batch, .length = request.max_seq_length, .ids = {}, .labels = {}};
  for (std::int64_t i = 0; i < tokens; ++i) {
    batch.ids.push_back(i * i % 199);
    batch.labels.push_back(i * 7 % 199);
  }
  data::StepData data;
  data.num_samples = request.global_batch;
  data.num_tokens = data.num_trained_tokens = tokens * request.ranks.world_size;
  data.micro_steps.emplace_back(std::move(batch));
  return data;
}

/// The most that tensors take in the second step, by which every buffer is there.
std::int64_t measure(const plan::Request& request, const plan::Plan& plan,
                     const model::ParameterTable& table) {
  const std::int64_t before = metrics::tensor_bytes().live;
  const auto family = models::llama::family();
  const auto model = family.build(request.architecture);
  const world::World world = world::make(tests::mpi(), plan);
  shard::Options options;
  options.numbers = request.numbers;
  options.sharding = plan.mesh.sharding;
  options.overlap = request.parallel.overlap;
  shard::ModelShards shards(table, plan.shards, shard::make_groups(world, request.parallel.overlap),
                            options);
  model::Ops ops(shards);
  optim::AdamW optimizer({}, table, shards);
  randomize(request.architecture, table, 1, shards);
  const bool recomputes = request.activation_checkpointing == plan::ActivationCheckpointing::full;
  const Engine engine{request.architecture, *model, ops, shards,
                      recomputes ? Blocks::recomputed : Blocks::kept};
  const data::StepData data = step_data(request);
  for (std::int64_t step = 0; step < 2; ++step) {
    metrics::reset_peak();
    run_step(engine, world.batch, data, optimizer, {.step = step, .lr = 1e-4});
  }
  return metrics::tensor_bytes().peak - before;
}

class MemoryOfAStep : public testing::TestWithParam<Case> {
 protected:
  static void SetUpTestSuite() { metrics::count_tensor_bytes(); }
};

TEST_P(MemoryOfAStep, IsWithinFivePercentOfThePlan) {
  const plan::Request wanted = request(GetParam());
  const auto table =
      plan::regroup(models::llama::family().describe(wanted.architecture), wanted.parallel.bucket);
  const plan::Plan plan = plan::make(wanted, table);
  // Neither the program nor what MPI is given is a tensor.
  const std::int64_t planned = plan.memory_bytes() - plan.bytes_of(plan::Category::other) -
                               plan.bytes_of(plan::Category::communication);
  const std::int64_t measured = measure(wanted, plan, table);
  EXPECT_NEAR(static_cast<double>(measured) / static_cast<double>(planned), 1, 0.05)
      << measured << " bytes measured\n"
      << plan::to_string(plan);
}

using core::DType;
constexpr auto full = plan::ActivationCheckpointing::full;
constexpr auto topology = plan::Determinism::topology;
constexpr auto off = plan::Determinism::off;
constexpr auto none = plan::ActivationCheckpointing::none;

INSTANTIATE_TEST_SUITE_P(
    Runs, MemoryOfAStep,
    testing::Values(
        Case{"FullOfWeights", 12, 200, 1, DType::bf16},
        Case{"FullOfWeightsInFp32", 12, 200, 1, DType::f32},
        Case{"FullOfActivations", 4, 200, 8, DType::bf16},
        Case{"FullOfActivationsInFp32", 4, 200, 8, DType::f32},
        Case{"FullOfLogits", 1, 12000, 2, DType::bf16},
        Case{"WithATiedHead", 2, 4000, 2, DType::bf16, true},
        Case{"WithATiedHeadInFp32", 2, 4000, 2, DType::f32, true},
        Case{"InFixedPoint", 12, 200, 1, DType::bf16, false, "FULL_SHARD", topology},
        Case{"InFixedPointAndFp32", 12, 200, 1, DType::f32, false, "NO_SHARD", topology},
        Case{"WithWeightsKept", 12, 200, 1, DType::bf16, true, "SHARD_GRAD_OP"},
        Case{"WithReplicas", 12, 200, 1, DType::bf16, false, "NO_SHARD"},
        Case{"WithReplicasInFp32", 12, 200, 1, DType::f32, false, "NO_SHARD"},
        Case{"WithBlocksComputedAgain", 6, 200, 8, DType::bf16, false, "FULL_SHARD", off, full},
        Case{"ByLayer", 12, 200, 1, DType::bf16, false, "FULL_SHARD", off, none, "LAYER"},
        Case{"ByModel", 12, 200, 1, DType::bf16, false, "FULL_SHARD", off, none, "NONE"},
        Case{"WithoutOverlap", 2, 4000, 1, DType::bf16, true, "FULL_SHARD", off, none, "BLOCK",
             false}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace finetune::train
