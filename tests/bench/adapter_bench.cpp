// SPDX-License-Identifier: Apache-2.0
// An optimizer step of a Llama of 162M parameters (dimensions of JackFram's llama-160m; or of its
// first block, for a quick look) at sequence 512, batch 4, bf16-mixed, on one rank: all weights,
// LoRA of rank 8 beside all matrices, and the same beside NF4. Counters: tokens_per_s, loss of the
// last step, peak_rss_mib of the process: for memory run one of them alone.
//
// compare_lora.py runs this beside transformers + peft on the same work.

#include <benchmark/benchmark.h>

#include <memory>
#include <string>

#include "base/initial_weights.hpp"
#include "bench/bench_step.hpp"
#include "model/products.hpp"
#include "plan/layout/bucket.hpp"
#include "registry.hpp"
#include "train/run/detail/state.hpp"

namespace finetune {
namespace {

model::Architecture llama_160m(std::int64_t num_layers) {
  model::Architecture a;
  a.num_layers = num_layers;
  a.vocab_size = 32000;
  a.d_model = 768;
  a.num_heads = a.num_kv_heads = 12;
  a.head_size = 64;
  a.d_ff = 3072;
  a.max_positions = 2048;
  a.norm_eps = 1e-6;
  return a;
}

model::ParameterTable table_of(const model::Architecture& architecture, const std::string& name) {
  model::ParameterTable table = modules::registry().families.front().describe(architecture);
  model::AdapterSettings settings;
  settings.name = name;
  for (const model::Adapter& adapter : modules::registry().adapters)
    if (adapter.name == name) model::put_on(adapter, settings, "bench", table);
  return plan::regroup(std::move(table), plan::Bucket::block);
}

void step(benchmark::State& state, const char* adapter) {
  bench::prepare();
  const model::Architecture architecture = llama_160m(state.range(0));
  const model::ParameterTable table = table_of(architecture, adapter);
  shard::Options options;
  options.numbers.compute = core::DType::bf16;
  const plan::ShardMap map(table, 1, {.compute = options.numbers.compute});
  shard::ModelShards shards(table, map, shard::one_copy({}), options);
  base::randomize(architecture, table, 0, shards);
  const auto model = modules::registry().families.front().build(architecture);
  model::Ops ops(shards, model::path_for(core::DType::bf16));
  const train::Engine engine{
      .architecture = architecture, .model = *model, .ops = ops, .shards = shards};
  bench::run_steps(state, engine, table);
}

void sizes(benchmark::internal::Benchmark* bench) {
  bench->ArgName("layers")->Arg(1)->Arg(12)->UseRealTime()->Unit(benchmark::kMillisecond);
}

BENCHMARK_CAPTURE(step, full, "none")->Apply(sizes);
BENCHMARK_CAPTURE(step, lora, "lora")->Apply(sizes);
BENCHMARK_CAPTURE(step, qlora, "qlora")->Apply(sizes);

}  // namespace
}  // namespace finetune
