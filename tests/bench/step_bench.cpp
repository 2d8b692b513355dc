// SPDX-License-Identifier: Apache-2.0
// An optimizer step of a 60M-parameter Llama (dimensions of GaLore's llama-60m) at sequence 512,
// batch 4, on one rank. Counters: tokens_per_s, loss of the last step, peak_rss_mib of the process.
//
// compare_step.py runs this beside transformers on the same work.

#include <benchmark/benchmark.h>

#include <memory>

#include "base/initial_weights.hpp"
#include "bench/bench_step.hpp"
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

void step(benchmark::State& state, core::DType dtype) {
  bench::prepare();
  const auto& family = modules::registry().families.front();
  const model::Architecture architecture = llama_60m();
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

BENCHMARK_CAPTURE(step, bf16_mixed, core::DType::bf16)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(step, fp32, core::DType::f32)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace finetune
