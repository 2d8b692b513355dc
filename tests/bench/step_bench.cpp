// SPDX-License-Identifier: Apache-2.0
// An optimizer step of a 60M-parameter Llama (dimensions of GaLore's llama-60m) at sequence 512,
// batch 4, on one rank. Counters: tokens_per_s, loss of the last step, update_ms of the optimizer
// in a step, peak_rss_mib of the process. compare_step.py runs this beside transformers on the same
// work.
//
// And a mixture of 8 experts, of which a token takes 2, beside the dense model of as many active
// weights: the aim is a step of at most 1.15 times the dense one's. `beside` has the ratio, of
// steps of one micro-batch and of several.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

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

/// A model of random weights on one rank.
struct Trained {
  Trained(core::DType dtype, const std::string& model_type, const model::Architecture& its)
      : architecture(its),
        table(family_of(model_type).describe(its)),
        map(table, 1),
        shards(table, map, shard::one_copy({}), options(dtype)),
        model(family_of(model_type).build(its)),
        ops(shards, model::path_for(dtype)) {
    base::randomize(architecture, table, 0, shards);
  }

  static shard::Options options(core::DType dtype) {
    shard::Options options;
    options.numbers.compute = dtype;
    return options;
  }

  model::Architecture architecture;
  model::ParameterTable table;
  plan::ShardMap map;
  shard::ModelShards shards;
  model::ModelPtr model;
  model::Ops ops;
  train::Engine engine{architecture, *model, ops, shards};
};

void step(benchmark::State& state, core::DType dtype, const std::string& model_type,
          const model::Architecture& architecture) {
  bench::prepare();
  const Trained trained(dtype, model_type, architecture);
  bench::run_steps(state, trained.engine, trained.table);
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::ranges::nth_element(values, middle);
  return *middle;
}

/// A step of each, of as many micro-batches as the argument says, in turns, so that both meet the
/// same moods of the machine. Counters: the fastest of each, which nobody disturbed, and their
/// ratio; the median of the ratios of neighbours; and updates_ms, what the update of the mixture's
/// weights takes longer. The first steps, which compile kernels and touch memory, are not counted.
void beside(benchmark::State& state, core::DType dtype) {
  constexpr int num_warm_up = 3;
  bench::prepare();
  const Trained of_dense(dtype, "qwen3_moe", dense()), of_mixture(dtype, "qwen3_moe", mixture());
  bench::Steps dense_steps(of_dense.engine, of_dense.table, state.range(0));
  bench::Steps mixture_steps(of_mixture.engine, of_mixture.table, state.range(0));
  std::vector<double> dense_ms, mixture_ms, ratios, updates_ms;
  const auto pair = [&] {
    struct Times {
      double whole, update;
    };
    const auto timed = [](bench::Steps& steps) -> Times {
      const auto begin = std::chrono::steady_clock::now();
      const double update = steps.next().optimizer_s;
      const std::chrono::duration<double> whole = std::chrono::steady_clock::now() - begin;
      return {whole.count(), update};
    };
    const Times a = timed(dense_steps), b = timed(mixture_steps);
    dense_ms.push_back(bench::ms_per_s * a.whole);
    mixture_ms.push_back(bench::ms_per_s * b.whole);
    ratios.push_back(b.whole / a.whole);
    updates_ms.push_back(bench::ms_per_s * (b.update - a.update));
  };
  for (int i = 0; i < num_warm_up; ++i)
    pair();
  for (std::vector<double>* of : {&dense_ms, &mixture_ms, &ratios, &updates_ms})
    of->clear();
  for (auto _ : state)
    pair();
  const double fastest_dense = *std::ranges::min_element(dense_ms);
  const double fastest_mixture = *std::ranges::min_element(mixture_ms);
  state.counters["dense_ms"] = fastest_dense;
  state.counters["mixture_ms"] = fastest_mixture;
  state.counters["ratio_of_fastest"] = fastest_mixture / fastest_dense;
  state.counters["median_ratio"] = median(ratios);
  state.counters["updates_ms"] = median(updates_ms);
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
#define FINETUNE_BESIDE(name, dtype)     \
  BENCHMARK_CAPTURE(beside, name, dtype) \
      ->ArgName("micro_batches")         \
      ->Arg(1)                           \
      ->Arg(4)                           \
      ->UseRealTime()                    \
      ->Unit(benchmark::kMillisecond)
FINETUNE_BESIDE(bf16, DType::bf16);
FINETUNE_BESIDE(fp32, DType::f32);

}  // namespace
}  // namespace finetune
