#pragma once
// SPDX-License-Identifier: Apache-2.0
// The work that the benchmarks of optimizer steps share with the programs they are compared with.

#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <malloc.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>

#include "data/steps/stream.hpp"
#include "optimizers/adamw/adamw.hpp"
#include "train/step/step.hpp"

namespace finetune::bench {

inline constexpr std::int64_t sequence_length = 512;
inline constexpr std::int64_t batch_size = 4;

/// As the program itself does: see app/allocator.hpp.
inline void prepare() {
  ::mallopt(M_MMAP_THRESHOLD, 1 << 30);
  ::mallopt(M_TRIM_THRESHOLD, 2147483647);
  if (const char* threads = std::getenv("OMP_NUM_THREADS")) at::set_num_threads(std::stoi(threads));
}

/// Tokens of a linear congruential generator, so that another program can use the same without a
/// file.
inline data::MicroBatch next_batch(std::uint32_t& state) {
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
  return batch;
}

inline data::StepData next_step(std::uint32_t& state, std::int64_t num_batches = 1) {
  data::StepData data;
  data.num_tokens = num_batches * batch_size * sequence_length;
  data.num_trained_tokens = num_batches * batch_size * (sequence_length - 1);
  for (std::int64_t i = 0; i < num_batches; ++i)
    data.micro_steps.emplace_back(next_batch(state));
  return data;
}

inline double peak_rss_mib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stod(line.substr(6)) / 1024;
  }
  return 0;
}

/// Optimizer steps of AdamW on such data.
class Steps {
 public:
  /// What is given outlives this. `num_batches`: micro-batches of a step.
  Steps(const train::Engine& engine, const model::ParameterTable& table,
        std::int64_t num_batches = 1)
      : engine_(engine), optimizer_(settings(), table, engine.shards), num_batches_(num_batches) {}

  train::StepResult next() {
    return train::run_step(engine_, {}, next_step(tokens_, num_batches_), optimizer_,
                           {.step = step_++, .lr = settings().lr, .max_grad_norm = 1});
  }

 private:
  static optim::OptimizerSettings settings() {
    optim::OptimizerSettings settings;
    settings.lr = 1e-4;
    settings.weight_decay = 0.1;
    return settings;
  }

  const train::Engine& engine_;
  optimizers::adamw::AdamW optimizer_;
  std::int64_t num_batches_;
  std::uint32_t tokens_ = 1;
  std::int64_t step_ = 0;
};

inline constexpr double ms_per_s = 1e3;

/// Steps for as long as the benchmark asks, and their counters.
inline void run_steps(benchmark::State& state, const train::Engine& engine,
                      const model::ParameterTable& table) {
  Steps steps(engine, table);
  std::int64_t i = 0;
  double loss = 0, update_s = 0;
  for (auto _ : state) {
    const train::StepResult result = steps.next();
    loss = result.loss;
    update_s += result.optimizer_s;
    ++i;
  }
  state.counters["tokens_per_s"] = benchmark::Counter(
      static_cast<double>(i * batch_size * sequence_length), benchmark::Counter::kIsRate);
  state.counters["loss"] = loss;
  // A step less this is what the forward and backward passes cost, and the gradients' norm.
  state.counters["update_ms"] = ms_per_s * update_s / static_cast<double>(i);
  state.counters["peak_rss_mib"] = peak_rss_mib();
}

}  // namespace finetune::bench
