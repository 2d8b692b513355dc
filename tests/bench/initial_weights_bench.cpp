// SPDX-License-Identifier: Apache-2.0
// Random initial weights of a matrix, by torch's threads: set OMP_NUM_THREADS. items_per_second
// counts weights; an 8B model has 8.03e9 of them, of which a rank computes its shard.

#include <benchmark/benchmark.h>

#include <span>
#include <vector>

#include "base/initial_weights.hpp"

namespace finetune::bench {
namespace {

void random_weights(benchmark::State& state, model::Init init) {
  constexpr std::int64_t rows = 1024, columns = 4096;
  model::Architecture architecture;
  architecture.init_std = 0.02;
  model::ParameterTable table;
  table.rows.push_back({.name = "w", .shape = {rows, columns}});
  table.rows.back().init = init;
  const base::WeightSource source = base::random_source(architecture, table, 1);
  std::vector<float> values(rows * columns);
  for (auto _ : state) {
    source.values(0, 0, std::span<float>(values));
    benchmark::DoNotOptimize(values.data());
  }
  state.SetItemsProcessed(state.iterations() * rows * columns);
}
BENCHMARK_CAPTURE(random_weights, normal, model::Init::normal)->UseRealTime();
BENCHMARK_CAPTURE(random_weights, fan_in, model::Init::fan_in)->UseRealTime();

}  // namespace
}  // namespace finetune::bench
