// SPDX-License-Identifier: Apache-2.0
// The memory plan against what libtorch's allocator hands out in a step.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/initial_weights.hpp"
#include "model/fp8.hpp"
#include "models/gemma/gemma.hpp"
#include "models/llama/llama.hpp"
#include "models/llama/llama4.hpp"
#include "models/mistral/mistral.hpp"
#include "models/qwen/qwen.hpp"
#include "plan/layout/bucket.hpp"
#include "support/optimizers.hpp"
#include "support/ranks.hpp"
#include "unit/train/step_memory.hpp"

namespace finetune::train::memory_test {
namespace {

enum class Kind { llama, normed, window, experts, shared_experts, latents, sides };

struct Case : tests::MemoryRun {
  Kind kind = Kind::llama;
};

model::ModelFamily family(Kind kind) {
  switch (kind) {
    case Kind::normed:
      return models::qwen::qwen3();
    case Kind::window:
      return models::mistral::mistral();
    case Kind::experts:
      return models::qwen::qwen3_moe();
    case Kind::sides:
      return models::gemma::gemma4_text();
    case Kind::shared_experts:
      return models::llama::llama4_text();
    default:
      return models::llama::family();
  }
}

/// Makes layers of `kind` of those of a llama.
void set_kind(Case& run, Kind kind) {
  model::Architecture& a = run.request.architecture;
  model::Layer layer;
  run.kind = kind;
  if (kind == Kind::window) layer.window = 48;
  if (kind == Kind::normed) layer = tests::normed_layer;
  if (kind == Kind::experts) {
    layer = tests::normed_expert_layer;
    a.experts = {.num = 8, .top_k = 3, .d_ff = 96};
  }
  if (kind == Kind::latents) {
    a.num_kv_heads = a.num_heads;
    a.rotary_size = 16;
    a.latents = {.d_key_value = 64, .d_query = 96, .unturned = 32, .value_size = 32};
    a.head_size = a.query_size();
    layer.rotary = model::Rotary::pairs;
  }
  if (kind == Kind::shared_experts) {
    layer = {.has_experts = true, .head_norm = model::HeadNorm::weightless, .chunk = 100};
    a.experts = {.num = 4, .top_k = 1, .d_ff = 176, .d_shared = 176, .scales_input = true};
  }
  a.layers.assign(static_cast<std::size_t>(a.num_layers), layer);
  if (kind != Kind::sides) return;
  a.norms = model::Norms::around;
  a.layer_input_size = 48;
  for (std::size_t i = 2; i < a.layers.size(); ++i)
    a.layers[i].keys_of = 1;
}

class MemoryOfAStep : public testing::TestWithParam<Case> {
 protected:
  static void SetUpTestSuite() { metrics::count_tensor_bytes(); }
};

TEST_P(MemoryOfAStep, IsWithinFivePercentOfThePlan) {
  const Case& run = GetParam();
  if (!run.has_ranks()) GTEST_SKIP() << "the ranks do not form whole copies";
  const plan::PlanInput wanted = run.on_all_ranks();
  model::ParameterTable described = family(run.kind).describe(wanted.architecture);
  if (wanted.numbers.fp8) model::keep_in_fp8(*wanted.numbers.fp8, described);
  const auto table = plan::regroup(std::move(described), wanted.parallel.bucket);
  const plan::Plan plan = plan::make(wanted, table);
  tests::expect_as_planned(plan,
                           tests::measure(family(run.kind), wanted, plan, table,
                                          tests::scattered_source(wanted.architecture, table)));
}

using core::DType;
using enum plan::ActivationCheckpointing;
using plan::Sharding;

Case run_of(const char* name, std::int64_t layers, std::int64_t vocabulary,
            std::int64_t micro_batch, DType compute, bool tied = false) {
  Case run{{.name = name}};
  plan::PlanInput& request = run.request;
  request.architecture =
      tests::architecture_of({layers, 128, 4, 2, 32, 352, vocabulary, /*max_positions=*/256});
  request.architecture.tied_embeddings = tied;
  request.parallel.sharding = Sharding::full_shard;
  request.parallel.prefetch = 1;
  request.numbers.compute = compute;
  request.micro_batch = micro_batch;
  request.max_seq_length = 256;
  return run;
}

/// One rank's memory is full of weights and what belongs to them, or of activations.
const Case weights = run_of("FullOfWeights", 12, 200, 1, DType::bf16);
const Case activations = run_of("FullOfActivations", 6, 200, 8, DType::bf16);

/// change(run, its request).
template <typename Change>
Case with(Case run, const std::string& name, const Change& change) {
  run.name = name;
  change(run, run.request);
  return run;
}

std::vector<Case> models() {
  return {weights,
          activations,
          run_of("FullOfWeightsInFp32", 12, 200, 1, DType::f32),
          run_of("FullOfActivationsInFp32", 4, 200, 8, DType::f32),
          run_of("FullOfLogits", 1, 12000, 2, DType::bf16),
          run_of("WithATiedHead", 2, 4000, 2, DType::bf16, true),
          run_of("WithATiedHeadInFp32", 2, 4000, 2, DType::f32, true)};
}

using Request = plan::PlanInput;

std::vector<Case> strategies() {
  std::vector<Case> runs;
  const auto add = [&](const std::string& name, const auto& change) {
    runs.push_back(with(weights, name, [&](Case& run, Request&) { change(run.request); }));
    runs.push_back(with(weights, name + "WithoutOverlap", [&](Case& run, Request& r) {
      change(run.request);
      r.parallel.overlap = false;
    }));
  };
  const auto sharded = [&](const char* name, Sharding sharding, DType compute = DType::bf16,
                           DType reduce = DType::f32) {
    add(name, [=](Request& r) {
      r.parallel.sharding = sharding;
      r.parallel.dp_shard = sharding == Sharding::hybrid_shard ? 2 : 0;
      r.numbers.compute = compute;
      r.numbers.reduce = reduce;
    });
  };
  sharded("FullShard", Sharding::full_shard);
  add("FullShardThreeAhead", [](Request& r) { r.parallel.prefetch = 3; });
  sharded("WeightsKept", Sharding::shard_grad_op);
  add("TiedWeightsKept", [](Request& r) {
    r.parallel.sharding = Sharding::shard_grad_op;
    r.architecture.tied_embeddings = true;
  });
  sharded("Replicas", Sharding::no_shard);
  sharded("ReplicasInFp32", Sharding::no_shard, DType::f32);
  sharded("ReplicasReducedInBf16", Sharding::no_shard, DType::bf16, DType::bf16);
  sharded("Hybrid", Sharding::hybrid_shard);
  sharded("HybridReducedInBf16", Sharding::hybrid_shard, DType::bf16, DType::bf16);
  add("ByLayer", [](Request& r) { r.parallel.bucket = plan::Bucket::layer; });
  add("ByModel", [](Request& r) { r.parallel.bucket = plan::Bucket::whole; });
  for (const DType compute : {DType::bf16, DType::f32})
    add(compute == DType::bf16 ? "CommunicatingAlone" : "CommunicatingAloneInFp32",
        [=](Request& r) {
          r.parallel.alone = plan::Alone::communicates;
          r.numbers.compute = compute;
        });
  add("TiedHead", [](Request& r) {
    r.architecture.num_layers = 2;
    r.architecture.vocab_size = 4000;
    r.architecture.tied_embeddings = true;
  });
  return runs;
}

/// Products in 8 bits.
std::vector<Case> narrow_products() {
  std::vector<Case> runs;
  const auto add = [&](const Case& base, const char* name, const model::Fp8Recipe& recipe,
                       Kind kind = Kind::llama, plan::ActivationCheckpointing checkpointing = none,
                       Sharding sharding = Sharding::full_shard) {
    runs.push_back(with(base, name, [&](Case& run, Request& r) {
      r.numbers.fp8 = recipe;
      r.activation_checkpointing = checkpointing;
      r.parallel.sharding = sharding;
      if (kind != Kind::llama) set_kind(run, kind);
    }));
  };
  add(weights, "Fp8", {});
  add(activations, "Fp8FullOfActivations", {});
  add(activations, "Fp8ComputedAgain", {}, Kind::llama, selective);
  add(activations, "Fp8ComputedAgain", {}, Kind::llama, full);
  add(activations, "Fp8SharedExperts", {}, Kind::shared_experts);
  add(activations, "Fp8Experts", {}, Kind::experts);
  add(weights, "Fp8Experts", {}, Kind::experts, full);
  add(weights, "Fp8ExpertsOfReplicas", {}, Kind::experts, none, Sharding::no_shard);
  add(activations, "Fp8OfWeightGradientsOfExperts", {.weight_gradients = true}, Kind::experts);
  add(activations, "Fp8OfWeightGradientsToo", {.weight_gradients = true});
  runs.push_back(with(activations, "Fp8ByBlocks", [](Case&, Request& r) {
    r.architecture = tests::architecture_of({6, 512, 16, 8, 32, 1024, 200, 256});
    r.numbers.fp8 = model::Fp8Recipe{.scaling = model::Fp8Scaling::block};
  }));
  return runs;
}

std::vector<Case> numbers() {
  std::vector<Case> runs;
  const auto add = [&](const char* name, const auto& change) {
    runs.push_back(with(weights, name, change));
  };
  const auto fixed = [](Sharding sharding, DType compute = DType::bf16) {
    return [=](Case&, Request& r) {
      r.numbers.determinism = plan::Determinism::topology;
      r.parallel.sharding = sharding;
      r.parallel.dp_shard = sharding == Sharding::hybrid_shard ? 2 : 0;
      r.numbers.compute = compute;
    };
  };
  add("FixedPoint", fixed(Sharding::full_shard));
  add("FixedPointOfReplicas", fixed(Sharding::no_shard));
  add("FixedPointOfReplicasInFp32", fixed(Sharding::no_shard, DType::f32));
  add("FixedPointOfHybrid", fixed(Sharding::hybrid_shard));
  for (const bool replicas : {false, true})
    add(replicas ? "TrueBf16OfReplicas" : "TrueBf16", [=](Case&, Request& r) {
      r.numbers.master = r.numbers.moments = DType::bf16;
      if (replicas) r.parallel.sharding = Sharding::no_shard;
    });
  add("Fp16", [](Case&, Request& r) { r.numbers.compute = DType::f16; });
  add("MeanOfWeights", [](Case&, Request& r) { r.optimizer = plan::with_ema(r.optimizer); });
  for (const bool fixed_point : {false, true})
    add(fixed_point ? "UpdatesInBackwardInFixedPoint" : "UpdatesInBackward",
        [=](Case&, Request& r) {
          r.updates_in_backward = true;
          if (fixed_point) r.numbers.determinism = plan::Determinism::topology;
        });
  for (const bool replicas : {true, false})
    add(replicas ? "NoiseOfReplicasInFp32" : "Noise", [=](Case& run, Request& r) {
      run.accumulation = 2;
      r.numbers.keeps_passes_apart = true;
      if (!replicas) return;
      r.parallel.sharding = Sharding::no_shard;
      r.numbers.compute = DType::f32;
    });
  for (const Case& run : narrow_products())
    runs.push_back(run);
  add("ReducedInFp16", [](Case&, Request& r) { r.numbers.reduce = DType::f16; });
  return runs;
}

std::vector<Case> passes() {
  std::vector<Case> runs;
  const auto add = [&](const char* name, DType compute, plan::ActivationCheckpointing checkpointing,
                       std::int64_t recomputed_blocks = 0, Kind kind = Kind::llama) {
    runs.push_back(with(activations, name, [&](Case& run, Request& r) {
      r.numbers.compute = compute;
      r.activation_checkpointing = checkpointing;
      r.recomputed_blocks = recomputed_blocks;
      if (kind != Kind::llama) set_kind(run, kind);
    }));
  };
  for (const DType compute : {DType::bf16, DType::f32}) {
    add("BlocksComputedAgain", compute, full);
    for (const auto others : {none, selective})
      for (const std::int64_t blocks : {1, 2, 5})
        add("SomeBlocksComputedAgain", compute, others, blocks);
    add("CheapComputedAgain", compute, selective);
  }
  constexpr std::pair<Kind, const char*> kinds[] = {
      {Kind::normed, "HeadNorms"}, {Kind::window, "Window"},
      {Kind::experts, "Experts"},  {Kind::shared_experts, "SharedExperts"},
      {Kind::latents, "Latents"},  {Kind::sides, "Sides"}};
  for (const auto& [kind, name] : kinds)
    for (const DType compute : {DType::bf16, DType::f32})
      for (const auto checkpointing : {none, selective, full})
        add(name, compute, checkpointing, 0, kind);
  for (const std::int64_t accumulation : {2, 3})
    for (const auto sharding : {Sharding::full_shard, Sharding::shard_grad_op, Sharding::no_shard})
      runs.push_back(with(weights, "SeveralMicroSteps", [&](Case& run, Request& r) {
        run.accumulation = accumulation;
        r.parallel.sharding = sharding;
      }));
  return runs;
}

std::string name(const testing::TestParamInfo<Case>& info) {
  return info.param.name + "_" + std::to_string(info.index);
}

INSTANTIATE_TEST_SUITE_P(Models, MemoryOfAStep, testing::ValuesIn(models()), name);
INSTANTIATE_TEST_SUITE_P(Strategies, MemoryOfAStep, testing::ValuesIn(strategies()), name);
INSTANTIATE_TEST_SUITE_P(Numbers, MemoryOfAStep, testing::ValuesIn(numbers()), name);
INSTANTIATE_TEST_SUITE_P(Passes, MemoryOfAStep, testing::ValuesIn(passes()), name);

}  // namespace
}  // namespace finetune::train::memory_test
