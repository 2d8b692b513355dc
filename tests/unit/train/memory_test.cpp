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
  std::int64_t recomputed_blocks = 0;
  const char* bucket = "BLOCK";
  bool overlap = true;
  std::int64_t prefetch = 1;
  core::DType state = core::DType::f32;  ///< master weights and moments
  core::DType reduce = core::DType::f32;
  std::int64_t accumulation = 1;
  std::int64_t dp_shard = 0;
  plan::Alone alone = plan::Alone::keeps;
  std::optional<model::Fp8Recipe> fp8 = {};
  std::int64_t scale = 1;  ///< of the widths
  bool keeps_ema = false;
  bool measures_noise = false;
  bool updates_in_backward = false;
  enum class Kind {
    llama,
    normed,
    window,
    experts,
    shared_experts,
    latents,
    sides
  } kind = Kind::llama;
};

void PrintTo(const Case& run, std::ostream* out) {
  *out << run.name;
}

model::ModelFamily family(const Case& run) {
  switch (run.kind) {
    case Case::Kind::normed:
      return models::qwen::qwen3();
    case Case::Kind::window:
      return models::mistral::mistral();
    case Case::Kind::experts:
      return models::qwen::qwen3_moe();
    case Case::Kind::sides:
      return models::gemma::gemma4_text();
    case Case::Kind::shared_experts:
      return models::llama::llama4_text();
    default:
      return models::llama::family();
  }
}

/// What the layers of such a family are.
void add_layers(const Case& run, model::Architecture& a) {
  model::Layer layer;
  if (run.kind == Case::Kind::window) layer.window = 48;
  if (run.kind == Case::Kind::normed || run.kind == Case::Kind::experts)
    layer.head_norm = model::HeadNorm::weighted;
  if (run.kind == Case::Kind::experts) {
    layer.has_experts = true;
    a.experts = {.num = 8, .top_k = 3, .d_ff = 96};
  }
  if (run.kind == Case::Kind::latents) {
    a.num_kv_heads = a.num_heads;
    a.rotary_size = 16;
    a.latents = {.d_key_value = 64, .d_query = 96, .unturned = 32, .value_size = 32};
    a.head_size = a.query_size();
    layer.rotary = model::Rotary::pairs;
  }
  if (run.kind == Case::Kind::shared_experts) {
    layer.has_experts = true;
    layer.chunk = 100;
    layer.head_norm = model::HeadNorm::weightless;
    a.experts = {.num = 4, .top_k = 1, .d_ff = 176, .d_shared = 176, .scales_input = true};
  }
  a.layers.assign(static_cast<std::size_t>(a.num_layers), layer);
  if (run.kind != Case::Kind::sides) return;
  a.norms = model::Norms::around;
  a.layer_input_size = 48;
  for (std::size_t i = 2; i < a.layers.size(); ++i)
    a.layers[i].keys_of = 1;
}

model::Architecture architecture(const Case& run) {
  model::Architecture a;
  a.family = "llama";
  a.num_layers = run.num_layers;
  a.vocab_size = run.vocab_size;
  a.d_model = 128 * run.scale;
  a.num_heads = 4 * run.scale;
  a.num_kv_heads = 2 * run.scale;
  a.head_size = 32;
  a.d_ff = run.scale > 1 ? 256 * run.scale : 352;
  a.max_positions = 256;
  a.tied_embeddings = run.tied;
  if (run.kind != Case::Kind::llama) add_layers(run, a);
  return a;
}

plan::PlanInput request(const Case& run) {
  plan::PlanInput request = tests::adamw_request();
  request.architecture = architecture(run);
  request.parallel.sharding = plan::sharding_named(run.sharding);
  request.parallel.bucket = plan::bucket_named(run.bucket);
  request.parallel.overlap = run.overlap;
  request.parallel.prefetch = run.prefetch;
  request.parallel.alone = run.alone;
  request.numbers.determinism = run.determinism;
  request.activation_checkpointing = run.checkpointing;
  request.recomputed_blocks = run.recomputed_blocks;
  request.parallel.dp_shard = run.dp_shard;
  request.numbers.compute = run.compute;
  request.numbers.master = request.numbers.moments = run.state;
  request.numbers.reduce = run.reduce;
  request.numbers.fp8 = run.fp8;
  request.numbers.keeps_passes_apart = run.measures_noise;
  request.updates_in_backward = run.updates_in_backward;
  if (run.keeps_ema) request.optimizer = plan::with_ema(request.optimizer);
  request.numbers.scales_loss = run.compute == core::DType::f16;
  const std::int64_t ranks = tests::world().size();
  request.ranks = {.world_size = ranks, .ranks_per_node = ranks};
  request.global_batch = run.micro_batch * ranks * run.accumulation;
  request.micro_batch = run.micro_batch;
  request.max_seq_length = 256;
  return request;
}

class MemoryOfAStep : public testing::TestWithParam<Case> {
 protected:
  static void SetUpTestSuite() { metrics::count_tensor_bytes(); }
};

TEST_P(MemoryOfAStep, IsWithinFivePercentOfThePlan) {
  if (GetParam().dp_shard > 0 && tests::world().size() % GetParam().dp_shard != 0)
    GTEST_SKIP() << "the ranks do not form copies of " << GetParam().dp_shard;
  const plan::PlanInput wanted = request(GetParam());
  model::ParameterTable described = family(GetParam()).describe(wanted.architecture);
  if (GetParam().fp8) model::keep_in_fp8(*GetParam().fp8, described);
  const auto table = plan::regroup(std::move(described), wanted.parallel.bucket);
  const plan::Plan plan = plan::make(wanted, table);
  tests::expect_as_planned(plan,
                           tests::measure(family(GetParam()), wanted, plan, table,
                                          tests::scattered_source(wanted.architecture, table)));
}

using core::DType;
using plan::ActivationCheckpointing;
constexpr auto topology = plan::Determinism::topology;

/// One rank's memory is full of weights and what belongs to them, or of activations.
constexpr Case weights{"FullOfWeights", 12, 200, 1, DType::bf16};
constexpr Case activations{"FullOfActivations", 6, 200, 8, DType::bf16};

template <typename Change>
constexpr Case with(Case run, const char* name, const Change& change) {
  run.name = name;
  change(run);
  return run;
}

std::vector<Case> models() {
  return {weights,
          activations,
          {"FullOfWeightsInFp32", 12, 200, 1, DType::f32},
          {"FullOfActivationsInFp32", 4, 200, 8, DType::f32},
          {"FullOfLogits", 1, 12000, 2, DType::bf16},
          {"WithATiedHead", 2, 4000, 2, DType::bf16, true},
          {"WithATiedHeadInFp32", 2, 4000, 2, DType::f32, true}};
}

std::vector<Case> strategies() {
  std::vector<Case> runs;
  const auto add = [&](const char* name, const auto& change) {
    runs.push_back(with(weights, name, change));
    runs.push_back(with(weights, name, [&](Case& run) {
      change(run);
      run.overlap = false;
    }));
  };
  add("FullShard", [](Case&) {});
  add("FullShardThreeAhead", [](Case& run) { run.prefetch = 3; });
  add("WeightsKept", [](Case& run) { run.sharding = "SHARD_GRAD_OP"; });
  add("TiedWeightsKept", [](Case& run) {
    run.sharding = "SHARD_GRAD_OP";
    run.tied = true;
  });
  add("Replicas", [](Case& run) { run.sharding = "NO_SHARD"; });
  add("ReplicasInFp32", [](Case& run) {
    run.sharding = "NO_SHARD";
    run.compute = DType::f32;
  });
  add("ReplicasReducedInBf16", [](Case& run) {
    run.sharding = "NO_SHARD";
    run.reduce = DType::bf16;
  });
  add("Hybrid", [](Case& run) {
    run.sharding = "HYBRID_SHARD";
    run.dp_shard = 2;
  });
  add("HybridReducedInBf16", [](Case& run) {
    run.sharding = "HYBRID_SHARD";
    run.dp_shard = 2;
    run.reduce = DType::bf16;
  });
  add("ByLayer", [](Case& run) { run.bucket = "LAYER"; });
  add("ByModel", [](Case& run) { run.bucket = "NONE"; });
  add("CommunicatingAlone", [](Case& run) { run.alone = plan::Alone::communicates; });
  add("CommunicatingAloneInFp32", [](Case& run) {
    run.alone = plan::Alone::communicates;
    run.compute = DType::f32;
  });
  add("TiedHead", [](Case& run) {
    run.num_layers = 2;
    run.vocab_size = 4000;
    run.tied = true;
  });
  return runs;
}

std::vector<Case> numbers() {
  std::vector<Case> runs;
  const auto add = [&](const char* name, const auto& change) {
    runs.push_back(with(weights, name, change));
  };
  const auto fixed = [](const char* sharding, std::int64_t dp_shard, DType compute) {
    return [=](Case& run) {
      run.determinism = topology;
      run.sharding = sharding;
      run.dp_shard = dp_shard;
      run.compute = compute;
    };
  };
  add("FixedPoint", fixed("FULL_SHARD", 0, DType::bf16));
  add("FixedPointOfReplicas", fixed("NO_SHARD", 0, DType::bf16));
  add("FixedPointOfReplicasInFp32", fixed("NO_SHARD", 0, DType::f32));
  add("FixedPointOfHybrid", fixed("HYBRID_SHARD", 2, DType::bf16));
  add("TrueBf16", [](Case& run) { run.state = DType::bf16; });
  add("TrueBf16OfReplicas", [](Case& run) {
    run.state = DType::bf16;
    run.sharding = "NO_SHARD";
  });
  add("Fp16", [](Case& run) { run.compute = DType::f16; });
  add("MeanOfWeights", [](Case& run) { run.keeps_ema = true; });
  add("UpdatesInBackward", [](Case& run) { run.updates_in_backward = true; });
  add("UpdatesInBackwardInFixedPoint", [](Case& run) {
    run.updates_in_backward = true;
    run.determinism = plan::Determinism::topology;
  });
  add("NoiseOfReplicasInFp32", [](Case& run) {
    run.sharding = "NO_SHARD";
    run.compute = DType::f32;
    run.accumulation = 2;
    run.measures_noise = true;
  });
  add("Noise", [](Case& run) {
    run.accumulation = 2;
    run.measures_noise = true;
  });
  const auto rowwise = [](Case& run) { run.fp8 = model::Fp8Recipe{}; };
  add("Fp8", rowwise);
  runs.push_back(with(activations, "Fp8FullOfActivations", rowwise));
  for (const auto checkpointing :
       {ActivationCheckpointing::selective, ActivationCheckpointing::full}) {
    runs.push_back(with(activations, "Fp8ComputedAgain", [&](Case& run) {
      rowwise(run);
      run.checkpointing = checkpointing;
    }));
  }
  runs.push_back(with(activations, "Fp8SharedExperts", [&](Case& run) {
    rowwise(run);
    run.kind = Case::Kind::shared_experts;
  }));
  for (const auto checkpointing : {ActivationCheckpointing::none, ActivationCheckpointing::full}) {
    const bool is_full = checkpointing == ActivationCheckpointing::full;
    runs.push_back(with(is_full ? weights : activations, "Fp8Experts", [&](Case& run) {
      rowwise(run);
      run.kind = Case::Kind::experts;
      run.checkpointing = checkpointing;
    }));
  }
  runs.push_back(with(weights, "Fp8ExpertsOfReplicas", [&](Case& run) {
    rowwise(run);
    run.kind = Case::Kind::experts;
    run.sharding = "NO_SHARD";
  }));
  runs.push_back(with(activations, "Fp8OfWeightGradientsOfExperts", [](Case& run) {
    run.fp8 = model::Fp8Recipe{.weight_gradients = true};
    run.kind = Case::Kind::experts;
  }));
  runs.push_back(with(activations, "Fp8OfWeightGradientsToo",
                      [](Case& run) { run.fp8 = model::Fp8Recipe{.weight_gradients = true}; }));
  runs.push_back(with(activations, "Fp8ByBlocks", [](Case& run) {
    run.fp8 = model::Fp8Recipe{.scaling = model::Fp8Scaling::block};
    run.scale = 4;
  }));
  add("ReducedInFp16", [](Case& run) { run.reduce = DType::f16; });
  return runs;
}

std::vector<Case> passes() {
  std::vector<Case> runs;
  const auto add = [&](const Case& base, const char* name, const auto& change) {
    runs.push_back(with(base, name, change));
  };
  for (const DType compute : {DType::bf16, DType::f32}) {
    add(activations, "BlocksComputedAgain", [&](Case& run) {
      run.checkpointing = ActivationCheckpointing::full;
      run.compute = compute;
    });
    for (const auto others : {ActivationCheckpointing::none, ActivationCheckpointing::selective})
      for (const std::int64_t blocks : {1, 2, 5})
        add(activations, "SomeBlocksComputedAgain", [&](Case& run) {
          run.checkpointing = others;
          run.recomputed_blocks = blocks;
          run.compute = compute;
        });
    add(activations, "CheapComputedAgain", [&](Case& run) {
      run.checkpointing = ActivationCheckpointing::selective;
      run.compute = compute;
    });
  }
  for (const auto kind : {Case::Kind::normed, Case::Kind::window, Case::Kind::experts,
                          Case::Kind::shared_experts, Case::Kind::latents, Case::Kind::sides}) {
    for (const DType compute : {DType::bf16, DType::f32}) {
      for (const auto checkpointing :
           {ActivationCheckpointing::none, ActivationCheckpointing::selective,
            ActivationCheckpointing::full}) {
        add(activations,
            kind == Case::Kind::normed    ? "HeadNorms"
            : kind == Case::Kind::window  ? "Window"
            : kind == Case::Kind::latents ? "Latents"
            : kind == Case::Kind::sides   ? "Sides"
            : kind == Case::Kind::experts ? "Experts"
                                          : "SharedExperts",
            [&](Case& run) {
              run.kind = kind;
              run.compute = compute;
              run.checkpointing = checkpointing;
            });
      }
    }
  }
  for (const std::int64_t accumulation : {2, 3}) {
    for (const char* sharding : {"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD"}) {
      add(weights, "SeveralMicroSteps", [&](Case& run) {
        run.accumulation = accumulation;
        run.sharding = sharding;
      });
    }
  }
  return runs;
}

std::string name(const testing::TestParamInfo<Case>& info) {
  const Case& run = info.param;
  std::string text = run.name;
  if (!run.overlap) text += "WithoutOverlap";
  return text + "_" + std::to_string(info.index);
}

INSTANTIATE_TEST_SUITE_P(Models, MemoryOfAStep, testing::ValuesIn(models()), name);
INSTANTIATE_TEST_SUITE_P(Strategies, MemoryOfAStep, testing::ValuesIn(strategies()), name);
INSTANTIATE_TEST_SUITE_P(Numbers, MemoryOfAStep, testing::ValuesIn(numbers()), name);
INSTANTIATE_TEST_SUITE_P(Passes, MemoryOfAStep, testing::ValuesIn(passes()), name);

}  // namespace
}  // namespace finetune::train::memory_test
