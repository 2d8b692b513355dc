// SPDX-License-Identifier: Apache-2.0
// 4-bit weights unpacked, dropout and 8-bit AdamW, beside plain passes over as much memory.
//
// bytes_per_second counts what is read and what is written once; copy and triad in the same run are
// what the memory gives. Arguments: elements, or inputs and outputs of a layer. Everything runs on
// torch's threads: set OMP_NUM_THREADS.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>

#include <cstring>
#include <span>
#include <vector>

#include "kernels/adamw.hpp"
#include "kernels/adamw8bit.hpp"
#include "kernels/composed_packed.hpp"
#include "kernels/dropout.hpp"
#include "kernels/gptq.hpp"
#include "kernels/nf4.hpp"

namespace finetune::kernels {
namespace {

template <class T>
std::span<T> elements(const at::Tensor& tensor) {
  return {static_cast<T*>(tensor.data_ptr()), static_cast<std::size_t>(tensor.numel())};
}

template <class T>
constexpr at::ScalarType scalar_type() {
  return sizeof(T) == sizeof(bf16) ? at::kBFloat16 : at::kFloat;
}

void set_rate(benchmark::State& state, std::int64_t elements, std::int64_t bytes) {
  state.SetItemsProcessed(state.iterations() * elements);
  state.SetBytesProcessed(state.iterations() * bytes);
}

at::Tensor random_bytes(at::IntArrayRef shape) {
  return at::randint(256, shape, at::TensorOptions(at::kByte));
}

at::Tensor random_floats(std::int64_t count) {
  return at::randn({count}, at::TensorOptions(at::kFloat));
}

void copy(benchmark::State& state) {
  const at::Tensor source = random_floats(state.range(0)), target = at::empty_like(source);
  const auto* from = source.const_data_ptr<float>();
  auto* to = target.mutable_data_ptr<float>();
  for (auto _ : state) {
    at::parallel_for(0, state.range(0), grain_elements, [&](std::int64_t first, std::int64_t last) {
      std::memcpy(to + first, from + first, static_cast<std::size_t>(last - first) * sizeof *to);
    });
  }
  set_rate(state, state.range(0), state.range(0) * 8);
}

void triad(benchmark::State& state) {
  const at::Tensor a = random_floats(state.range(0)), b = random_floats(state.range(0));
  const at::Tensor sum = at::empty_like(a);
  const auto *x = a.const_data_ptr<float>(), *y = b.const_data_ptr<float>();
  auto* z = sum.mutable_data_ptr<float>();
  for (auto _ : state) {
    at::parallel_for(0, state.range(0), grain_elements, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t i = first; i < last; ++i)
        z[i] = x[i] + 3.0f * y[i];
    });
  }
  set_rate(state, state.range(0), state.range(0) * 12);
}

/// Writes as many bf16 as the unpacking does, from half as many bytes and with ordinary stores.
void widen_half_bytes(benchmark::State& state) {
  const at::Tensor source = random_bytes({state.range(0) / 2});
  const at::Tensor target = at::empty({state.range(0)}, at::kBFloat16);
  const auto* from = source.const_data_ptr<std::uint8_t>();
  auto* to = elements<bf16>(target).data();
  for (auto _ : state) {
    at::parallel_for(0, state.range(0) / 2, grain_elements / 2,
                     [&](std::int64_t first, std::int64_t last) {
                       auto* pair = reinterpret_cast<std::uint32_t*>(to) + first;
                       for (std::int64_t i = 0; i < last - first; ++i)
                         pair[i] = from[first + i];
                     });
  }
  set_rate(state, state.range(0), state.range(0) * 5 / 2);
}

struct Packed {
  at::Tensor codes, absmax_codes, nested;

  explicit Packed(std::int64_t count)
      : codes(random_bytes({count / 2})),
        absmax_codes(random_bytes({count / nf4_block})),
        nested(at::ones({count / nf4_block / nested_block}, at::kFloat)) {}
};

template <class T>
void nf4(benchmark::State& state) {
  const std::int64_t count = state.range(0);
  const Packed packed(count);
  const at::Tensor out = at::empty({count}, scalar_type<T>());
  for (auto _ : state) {
    nf4_dequantize(Nf4<T>{.codes = elements<const std::uint8_t>(packed.codes),
                          .absmax_codes = elements<const std::uint8_t>(packed.absmax_codes),
                          .nested_absmax = elements<const float>(packed.nested),
                          .offset = 0.1f,
                          .out = elements<T>(out)});
  }
  set_rate(state, count, count / 2 + count / nf4_block + count * static_cast<int>(sizeof(T)));
}

void nf4_composed(benchmark::State& state) {
  const std::int64_t count = state.range(0);
  const Packed packed(count);
  const composed::Nf4Maxima maxima{{}, packed.absmax_codes, packed.nested, at::tensor(0.1f)};
  for (auto _ : state)
    benchmark::DoNotOptimize(composed::nf4_dequantize(packed.codes, maxima, count, at::kBFloat16));
  set_rate(state, count, count / 2 + count / nf4_block + count * 2);
}

void nf4_pack(benchmark::State& state) {
  const std::int64_t count = state.range(0);
  const Packed packed(count);
  const at::Tensor values = random_floats(count),
                   absmax = at::empty({count / nf4_block}, at::kFloat);
  for (auto _ : state) {
    nf4_absmax(elements<const float>(values), elements<float>(absmax));
    nf4_quantize(elements<const float>(values), elements<const float>(absmax),
                 elements<std::uint8_t>(packed.codes));
    const float offset = nested_offset(elements<const float>(absmax));
    nested_quantize(elements<const float>(absmax), offset,
                    elements<std::uint8_t>(packed.absmax_codes), elements<float>(packed.nested));
  }
  set_rate(state, count, count * 4 + count / 2 + count / nf4_block);
}

template <class T>
void gptq(benchmark::State& state) {
  const std::int64_t inputs = state.range(0), outputs = state.range(1), groups = inputs / 128;
  const at::Tensor qweight = random_bytes({inputs / 8, outputs * 4});
  const at::Tensor qzeros = random_bytes({groups, outputs / 2});
  const at::Tensor scales = at::ones({groups, outputs}, at::kHalf);
  at::Tensor g_idx = at::arange(inputs, at::kLong).div(128, "floor").to(at::kInt);
  if (state.range(2) != 0) g_idx = g_idx.index_select(0, at::randperm(inputs));
  const at::Tensor out = at::empty({inputs, outputs}, scalar_type<T>());
  const auto words = [](const at::Tensor& bytes) {
    return std::span<const std::int32_t>(static_cast<const std::int32_t*>(bytes.const_data_ptr()),
                                         static_cast<std::size_t>(bytes.nbytes() / 4));
  };
  for (auto _ : state) {
    gptq_dequantize(Gptq<T>{.qweight = words(qweight),
                            .qzeros = words(qzeros),
                            .scales = elements<const f16>(scales),
                            .g_idx = words(g_idx),
                            .inputs = inputs,
                            .outputs = outputs,
                            .stored_zero_offset = 1,
                            .out = elements<T>(out).data(),
                            .out_stride = outputs});
  }
  const std::int64_t count = inputs * outputs;
  set_rate(state, count,
           count / 2 + groups * outputs * 5 / 2 + count * static_cast<int>(sizeof(T)));
}

/// Rows of 4096 bf16: reads and writes each once.
void dropout_rows(benchmark::State& state) {
  const std::int64_t rows = state.range(0) / 4096;
  const at::Tensor x = random_floats(rows * 4096).to(at::kBFloat16), out = at::empty_like(x);
  const at::Tensor tokens = at::arange(rows, at::kLong);
  for (auto _ : state) {
    dropout(Dropout<bf16>{.x = elements<const bf16>(x),
                          .tokens = elements<const std::int64_t>(tokens),
                          .key = {1, 2},
                          .p = 0.1,
                          .out = elements<bf16>(out)});
  }
  set_rate(state, rows * 4096, rows * 4096 * 4);
}

void dropout_of_torch(benchmark::State& state) {
  const at::Tensor x = random_floats(state.range(0)).to(at::kBFloat16);
  for (auto _ : state)
    benchmark::DoNotOptimize(at::dropout(x, 0.1, /*train=*/true));
  set_rate(state, state.range(0), state.range(0) * 4);
}

struct Optimizer {
  at::Tensor weight, gradient, copy;

  explicit Optimizer(std::int64_t count)
      : weight(random_floats(count)),
        gradient(random_floats(count)),
        copy(at::empty({count}, at::kBFloat16)) {}
};

void adamw_fp32(benchmark::State& state) {
  const std::int64_t count = state.range(0);
  const Optimizer o(count);
  const at::Tensor m = at::zeros({count}, at::kFloat), v = at::zeros({count}, at::kFloat);
  for (auto _ : state) {
    adamw(AdamWStep<float>{.weight = elements<float>(o.weight),
                           .exp_avg = elements<float>(m),
                           .exp_avg_sq = elements<float>(v),
                           .gradient = elements<const float>(o.gradient),
                           .weight_bf16 = elements<bf16>(o.copy),
                           .lr = 1e-4,
                           .beta1 = 0.9,
                           .beta2 = 0.95,
                           .epsilon = 1e-8,
                           .weight_decay = 0.1,
                           .step = 10});
  }
  set_rate(state, count, count * 30);
}

void adamw_8bit(benchmark::State& state) {
  const std::int64_t count = state.range(0), blocks = count / moment_block;
  const Optimizer o(count);
  const at::Tensor m = at::zeros({count}, at::kByte), v = at::zeros({count}, at::kByte);
  const at::Tensor m_scale = at::zeros({blocks}, at::kFloat),
                   v_scale = at::zeros({blocks}, at::kFloat);
  const std::vector<DecayRun> runs{{0, count / 2, 0.1}, {count / 2, count - count / 2, 0.0}};
  for (auto _ : state) {
    adamw8bit(AdamW8bitStep<float>{.weight = elements<float>(o.weight),
                                   .exp_avg = elements<std::uint8_t>(m),
                                   .exp_avg_sq = elements<std::uint8_t>(v),
                                   .exp_avg_scale = elements<float>(m_scale),
                                   .exp_avg_sq_scale = elements<float>(v_scale),
                                   .gradient = elements<const float>(o.gradient),
                                   .weight_bf16 = elements<bf16>(o.copy),
                                   .runs = runs,
                                   .lr = 1e-4,
                                   .beta1 = 0.9,
                                   .beta2 = 0.95,
                                   .epsilon = 1e-8,
                                   .step = 10});
  }
  set_rate(state, count, count * 18);
}

void flat(benchmark::internal::Benchmark* bench) {
  bench->Arg(1 << 24)->UseRealTime()->Unit(benchmark::kMicrosecond);
}
void layers(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"in", "out", "act_order"});
  bench->Args({4096, 4096, 0})->Args({4096, 4096, 1})->UseRealTime()->Unit(benchmark::kMicrosecond);
}

BENCHMARK(copy)->Apply(flat);
BENCHMARK(triad)->Apply(flat);
BENCHMARK(widen_half_bytes)->Apply(flat);
BENCHMARK_TEMPLATE(nf4, bf16)->Apply(flat);
BENCHMARK_TEMPLATE(nf4, float)->Apply(flat);
BENCHMARK(nf4_composed)->Apply(flat);
BENCHMARK(nf4_pack)->Apply(flat);
BENCHMARK_TEMPLATE(gptq, bf16)->Apply(layers);
BENCHMARK_TEMPLATE(gptq, float)->Apply(layers);
BENCHMARK(dropout_rows)->Apply(flat);
BENCHMARK(dropout_of_torch)->Apply(flat);
BENCHMARK(adamw_fp32)->Apply(flat);
BENCHMARK(adamw_8bit)->Apply(flat);

}  // namespace
}  // namespace finetune::kernels
