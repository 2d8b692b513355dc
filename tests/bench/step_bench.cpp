// SPDX-License-Identifier: Apache-2.0
// An optimizer step of a 60M-parameter Llama (dimensions of GaLore's llama-60m) at sequence 512,
// batch 4, on one rank. Counters: tokens_per_s, loss of the last step, update_ms of the optimizer
// in a step, peak_rss_mib of the process. compare_step.py runs this beside transformers on the same
// work.
//
// And a mixture of 8 experts, of which a token takes 2, beside the dense model of as many active
// weights: the aim is a step of at most 1.15 times the dense one's, less the update of the weights
// that the dense one does not have, which is the difference between their update_ms.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <memory>
#include <string>

#include "base/initial_weights.hpp"
#include "bench/bench_step.hpp"
#include "core/error.hpp"
#include "model/products.hpp"
#include "registry.hpp"
#include "train/run/detail/state.hpp"

namespace finetune {
namespace {

model::Architecture llama_60m() {
  model::Architecture a;
  a.num_layers = 8;
  a.vocab_size = 32000;
  a.d_model = 512;
  a.num_heads = a.num_kv_heads = 8;
  a.head_size = 64;
  a.d_ff = 1376;
  a.max_positions = 2048;
  a.norm_eps = 1e-6;
  return a;
}

/// Of few words, so that blocks are most of a step.
model::Architecture dense() {
  model::Architecture a = llama_60m();
  a.vocab_size = 4096;
  return a;
}

model::Architecture mixture() {
  model::Architecture a = dense();
  a.layers.resize(static_cast<std::size_t>(a.num_layers));
  for (model::Layer& layer : a.layers)
    layer.has_experts = true;
  a.experts = {.num = 8, .top_k = 2, .d_ff = a.d_ff / 2};
  return a;
}

const model::ModelFamily& family_of(const std::string& model_type) {
  for (const model::ModelFamily& family : modules::registry().families)
    if (std::ranges::find(family.model_types, model_type) != family.model_types.end())
      return family;
  throw core::Error(core::ErrorKind::bug, "no family of " + model_type);
}

void step(benchmark::State& state, core::DType dtype, const std::string& model_type,
          const model::Architecture& architecture) {
  bench::prepare();
  const model::ModelFamily& family = family_of(model_type);
  const model::ParameterTable table = family.describe(architecture);
  const plan::ShardMap map(table, 1);
  shard::Options options;
  options.numbers.compute = dtype;
  shard::ModelShards shards(table, map, shard::one_copy({}), options);
  base::randomize(architecture, table, 0, shards);
  const auto model = family.build(architecture);
  model::Ops ops(shards, model::path_for(dtype));
  const train::Engine engine{architecture, *model, ops, shards};
  bench::run_steps(state, engine, table);
}

using core::DType;
#define FINETUNE_STEP(name, ...) \
  BENCHMARK_CAPTURE(step, name, __VA_ARGS__)->UseRealTime()->Unit(benchmark::kMillisecond)
FINETUNE_STEP(bf16_mixed, DType::bf16, "llama", llama_60m());
FINETUNE_STEP(fp32, DType::f32, "llama", llama_60m());
FINETUNE_STEP(dense_bf16, DType::bf16, "qwen3_moe", dense());
FINETUNE_STEP(mixture_bf16, DType::bf16, "qwen3_moe", mixture());
FINETUNE_STEP(dense_fp32, DType::f32, "qwen3_moe", dense());
FINETUNE_STEP(mixture_fp32, DType::f32, "qwen3_moe", mixture());

}  // namespace
}  // namespace finetune
