// SPDX-License-Identifier: Apache-2.0
// An optimizer step of a 60M-parameter Llama (dimensions of GaLore's llama-60m) at sequence 512,
// batch 4, on one rank. Counters: tokens_per_s, loss of the last step, peak_rss_mib of the process.
//
// compare_step.py runs this beside transformers on the same work.

#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <malloc.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>

#include "optim/adamw.hpp"
#include "registry.hpp"
#include "shard/model_shards.hpp"
#include "train/initial_weights.hpp"
#include "train/state.hpp"
#include "train/step.hpp"

namespace finetune {
namespace {

constexpr std::int64_t sequence_length = 512;
constexpr std::int64_t batch_size = 4;

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

/// Tokens of a linear congruential generator, so that another program can use the same without a
/// file.
data::StepData next_step(std::uint32_t& state) {
  data::MicroBatch batch{.batch = batch_size, .length = sequence_length, .ids = {}, .labels = {}};
  for (std::int64_t row = 0; row < batch_size; ++row) {
    for (std::int64_t i = 0; i < sequence_length; ++i) {
      state = (1103515245u * state + 12345u) & 0x7FFFFFFFu;
      const std::int64_t token = (state >> 16) % 1000;
      batch.ids.push_back(token);
      if (i > 0) batch.labels.push_back(token);
    }
    batch.labels.push_back(-100);
  }
  data::StepData data;
  data.num_tokens = batch_size * sequence_length;
  data.num_trained_tokens = batch_size * (sequence_length - 1);
  data.micro_steps.emplace_back(std::move(batch));
  return data;
}

double peak_rss_mib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stod(line.substr(6)) / 1024;
  }
  return 0;
}

void step(benchmark::State& bench, core::DType dtype) {
  // As the program itself does: see app/allocator.hpp.
  ::mallopt(M_MMAP_THRESHOLD, 1 << 30);
  ::mallopt(M_TRIM_THRESHOLD, 2147483647);
  if (const char* threads = std::getenv("OMP_NUM_THREADS")) at::set_num_threads(std::stoi(threads));
  const auto& family = modules::registry().families.front();
  const model::Architecture architecture = llama_60m();
  const model::ParameterTable table = family.describe(architecture);
  const plan::ShardMap map(table, 1);
  shard::Options options;
  options.numbers.compute = dtype;
  shard::ModelShards shards(table, map, shard::one_copy({}), options);
  train::randomize(architecture, table, 0, shards);
  const auto model = family.build(architecture);
  model::Ops ops(shards);
  optim::Settings settings;
  settings.lr = 1e-4;
  settings.weight_decay = 0.1;
  optim::AdamW optimizer(settings, table, shards);
  const train::Engine engine{architecture, *model, ops, shards};

  std::uint32_t tokens = 1;
  std::int64_t i = 0;
  double loss = 0;
  for (auto _ : bench) {
    loss = train::run_step(engine, {}, next_step(tokens), optimizer,
                           {.step = i, .lr = settings.lr, .max_grad_norm = 1})
               .loss;
    ++i;
  }
  bench.counters["tokens_per_s"] = benchmark::Counter(
      static_cast<double>(i * batch_size * sequence_length), benchmark::Counter::kIsRate);
  bench.counters["loss"] = loss;
  bench.counters["peak_rss_mib"] = peak_rss_mib();
}

BENCHMARK_CAPTURE(step, bf16_mixed, core::DType::bf16)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(step, fp32, core::DType::f32)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace finetune
