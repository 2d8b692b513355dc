// SPDX-License-Identifier: Apache-2.0
// Every kernel beside its composition of ATen operations, in bf16 at the shapes of a small model.
//
// Arguments: N tokens, then D, F or V. bytes_per_second counts each operand once, so that it can be
// held against the memory's rate. Both run on torch's threads: set OMP_NUM_THREADS.

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>

#include <span>

#include "kernels/adamw.hpp"
#include "kernels/composed.hpp"
#include "kernels/cross_entropy.hpp"
#include "kernels/detail/elementwise.hpp"
#include "kernels/detail/reduce.hpp"
#include "kernels/embedding.hpp"
#include "kernels/exact_squares.hpp"
#include "kernels/fixed_point.hpp"
#include "kernels/rms_norm.hpp"
#include "kernels/rope.hpp"
#include "kernels/swiglu.hpp"

namespace finetune::kernels {
namespace {

template <class T>
std::span<T> elements(const at::Tensor& tensor) {
  return {static_cast<T*>(tensor.data_ptr()), static_cast<std::size_t>(tensor.numel())};
}

at::Tensor narrow(at::IntArrayRef shape) {
  return at::randn(shape, at::TensorOptions(at::kFloat)).to(at::kBFloat16);
}

at::Tensor wide(at::IntArrayRef shape) {
  return at::randn(shape, at::TensorOptions(at::kFloat));
}

void set_bytes(benchmark::State& state, std::int64_t bytes) {
  state.SetBytesProcessed(state.iterations() * bytes);
}

struct Norm {
  std::int64_t rows, dim;
  at::Tensor x, residual, weight, y, h, dx, rstd, dweight;

  explicit Norm(const benchmark::State& state)
      : rows(state.range(0)),
        dim(state.range(1)),
        x(narrow({rows, dim})),
        residual(narrow({rows, dim})),
        weight(narrow({dim})),
        y(at::empty_like(x)),
        h(at::empty_like(x)),
        dx(at::empty_like(x)),
        rstd(at::ones({rows}, at::kFloat)),
        dweight(at::zeros({dim}, at::kFloat)) {}
};

void rms_norm_kernel(benchmark::State& state) {
  const Norm n(state);
  for (auto _ : state) {
    rms_norm(RmsNormForward<bf16>{.x = elements<bf16>(n.x),
                                  .residual = elements<bf16>(n.residual),
                                  .weight = elements<bf16>(n.weight),
                                  .epsilon = 1e-5f,
                                  .h = elements<bf16>(n.h),
                                  .y = elements<bf16>(n.y),
                                  .rstd = elements<float>(n.rstd)});
  }
  set_bytes(state, n.rows * n.dim * 8);
}

void rms_norm_composed(benchmark::State& state) {
  const Norm n(state);
  for (auto _ : state) {
    const at::Tensor h = n.x + n.residual;
    benchmark::DoNotOptimize(composed::rms_norm(h, n.weight, 1e-5));
  }
  set_bytes(state, n.rows * n.dim * 8);
}

void rms_norm_backward_kernel(benchmark::State& state) {
  const Norm n(state);
  for (auto _ : state) {
    rms_norm_backward(RmsNormBackward<bf16>{.dy = elements<bf16>(n.y),
                                            .h = elements<bf16>(n.x),
                                            .weight = elements<bf16>(n.weight),
                                            .rstd = elements<float>(n.rstd),
                                            .dresidual = elements<bf16>(n.residual),
                                            .dx = elements<bf16>(n.dx),
                                            .dweight = elements<float>(n.dweight)});
  }
  set_bytes(state, n.rows * n.dim * 8);
}

void rms_norm_backward_composed(benchmark::State& state) {
  const Norm n(state);
  for (auto _ : state) {
    const auto [dx, dweight] = composed::rms_norm_backward(n.y, n.x, n.weight, n.rstd);
    n.dweight.add_(dweight);
    benchmark::DoNotOptimize(dx + n.residual);
  }
  set_bytes(state, n.rows * n.dim * 8);
}

struct Rotated {
  static constexpr std::int64_t head_size = 64;
  std::int64_t rows, heads;
  at::Tensor qkv, cos, sin, positions;

  explicit Rotated(const benchmark::State& state)
      : rows(state.range(0)),
        heads(state.range(1) / head_size),
        qkv(narrow({rows, 3 * state.range(1)})),
        cos(at::ones({512, head_size / 2}, at::kFloat)),
        sin(at::zeros({512, head_size / 2}, at::kFloat)),
        positions(at::arange(rows, at::kLong).remainder(512)) {}
};

void rope_kernel(benchmark::State& state) {
  const Rotated r(state);
  for (auto _ : state) {
    rope(Rope<bf16>{.qkv = elements<bf16>(r.qkv),
                    .cos = elements<float>(r.cos),
                    .sin = elements<float>(r.sin),
                    .positions = elements<std::int64_t>(r.positions),
                    .query_heads = r.heads,
                    .key_heads = r.heads,
                    .head_size = Rotated::head_size});
  }
  set_bytes(state, r.qkv.numel() / 3 * 2 * 4);
}

void rope_composed(benchmark::State& state) {
  Rotated r(state);
  for (auto _ : state) {
    composed::rope_(r.qkv, r.cos, r.sin, r.positions, {r.heads, r.heads, Rotated::head_size},
                    Rotation::forward);
  }
  set_bytes(state, r.qkv.numel() / 3 * 2 * 4);
}

void swiglu_kernel(benchmark::State& state) {
  const std::int64_t rows = state.range(0), features = state.range(1);
  const at::Tensor gate_up = narrow({rows, 2 * features}), y = narrow({rows, features});
  for (auto _ : state)
    swiglu<bf16>(elements<bf16>(gate_up), features, elements<bf16>(y));
  set_bytes(state, rows * features * 6);
}

// As eager code does it, in bf16 throughout: faster than the composition in fp32.
void swiglu_composed(benchmark::State& state) {
  const at::Tensor gate_up = narrow({state.range(0), 2 * state.range(1)});
  for (auto _ : state) {
    const auto halves = gate_up.chunk(2, -1);
    benchmark::DoNotOptimize(at::silu(halves[0]) * halves[1]);
  }
  set_bytes(state, gate_up.numel() * 3);
}

void swiglu_backward_kernel(benchmark::State& state) {
  const std::int64_t rows = state.range(0), features = state.range(1);
  const at::Tensor gate_up = narrow({rows, 2 * features}), dy = narrow({rows, features});
  const at::Tensor gradient = at::empty_like(gate_up);
  for (auto _ : state) {
    swiglu_backward<bf16>(elements<bf16>(dy), elements<bf16>(gate_up), features,
                          elements<bf16>(gradient));
  }
  set_bytes(state, rows * features * 10);
}

void swiglu_backward_composed(benchmark::State& state) {
  const at::Tensor gate_up = narrow({state.range(0), 2 * state.range(1)});
  const at::Tensor dy = narrow({state.range(0), state.range(1)});
  for (auto _ : state) {
    const auto halves = gate_up.chunk(2, -1);
    const at::Tensor d_gate = at::silu_backward(dy * halves[1], halves[0]);
    benchmark::DoNotOptimize(at::cat({d_gate, dy * at::silu(halves[0])}, -1));
  }
  set_bytes(state, dy.numel() * 10);
}

// The gradient overwrites the logits, but its values do not change the time of the next pass.
void cross_entropy_kernel(benchmark::State& state) {
  const at::Tensor logits = narrow({state.range(0), state.range(1)});
  const at::Tensor targets = at::randint(state.range(1), {state.range(0)}, at::kLong);
  const at::Tensor scales = at::full({state.range(0)}, 1e-3f), losses = at::empty_like(scales);
  for (auto _ : state) {
    cross_entropy_with_gradient<bf16>(elements<bf16>(logits), elements<std::int64_t>(targets),
                                      elements<float>(scales), elements<float>(losses));
    benchmark::ClobberMemory();
  }
  set_bytes(state, logits.numel() * 4);
}

void cross_entropy_composed(benchmark::State& state) {
  const at::Tensor logits = narrow({state.range(0), state.range(1)});
  const at::Tensor targets = at::randint(state.range(1), {state.range(0)}, at::kLong);
  for (auto _ : state) {
    // As eager code does it: log_softmax in fp32, its backward from the saved output.
    const at::Tensor log_softmax = at::log_softmax(logits, -1, at::kFloat);
    const at::Tensor index = targets.unsqueeze(-1);
    benchmark::DoNotOptimize(log_softmax.gather(-1, index).sum());
    at::Tensor d_log = at::zeros_like(log_softmax);
    d_log.scatter_(-1, index, -1e-3);
    const at::Tensor gradient = at::_log_softmax_backward_data(d_log, log_softmax, -1, at::kFloat);
    benchmark::DoNotOptimize(gradient.to(at::kBFloat16));
  }
  set_bytes(state, logits.numel() * 4);
}

struct Embedded {
  static constexpr std::int64_t vocabulary = 32000;
  std::int64_t dim;
  at::Tensor ids, dy, dweight;

  explicit Embedded(const benchmark::State& state)
      : dim(state.range(1)),
        ids(at::randint(vocabulary, {state.range(0)}, at::kLong)),
        dy(narrow({state.range(0), dim})),
        dweight(at::zeros({vocabulary, dim}, at::kFloat)) {}
};

void embedding_backward_kernel(benchmark::State& state) {
  const Embedded e(state);
  for (auto _ : state) {
    embedding_backward<bf16, float>(elements<bf16>(e.dy), elements<std::int64_t>(e.ids), e.dim,
                                    elements<float>(e.dweight));
  }
  set_bytes(state, e.dy.numel() * 10);
}

void embedding_backward_composed(benchmark::State& state) {
  Embedded e(state);
  for (auto _ : state)
    e.dweight.index_add_(0, e.ids, e.dy.to(at::kFloat));
  set_bytes(state, e.dy.numel() * 10);
}

struct Optimizer {
  at::Tensor weight, exp_avg, exp_avg_sq, gradient, copy;

  explicit Optimizer(std::int64_t count)
      : weight(wide({count})),
        exp_avg(at::zeros({count}, at::kFloat)),
        exp_avg_sq(at::zeros({count}, at::kFloat)),
        gradient(wide({count})),
        copy(at::empty({count}, at::kBFloat16)) {}
};

void adamw_kernel(benchmark::State& state) {
  const Optimizer o(state.range(0));
  for (auto _ : state) {
    adamw(AdamWStep<float>{.weight = elements<float>(o.weight),
                           .exp_avg = elements<float>(o.exp_avg),
                           .exp_avg_sq = elements<float>(o.exp_avg_sq),
                           .gradient = elements<float>(o.gradient),
                           .weight_bf16 = elements<bf16>(o.copy),
                           .lr = 1e-4,
                           .beta1 = 0.9,
                           .beta2 = 0.95,
                           .epsilon = 1e-8,
                           .weight_decay = 0.1,
                           .step = 10,
                           .gradient_scale = 0.5f});
  }
  set_bytes(state, state.range(0) * 30);
}

void adamw_composed(benchmark::State& state) {
  Optimizer o(state.range(0));
  for (auto _ : state) {
    composed::adamw_(o.weight, o.exp_avg, o.exp_avg_sq, o.gradient * 0.5,
                     {1e-4, 0.9, 0.95, 1e-8, 0.1, 10});
    o.copy.copy_(o.weight);
  }
  set_bytes(state, state.range(0) * 30);
}

void squared_sum_kernel(benchmark::State& state) {
  const at::Tensor values = wide({state.range(0)});
  for (auto _ : state)
    benchmark::DoNotOptimize(squared_sum<float>(elements<float>(values)));
  set_bytes(state, values.numel() * 4);
}

void exact_squared_sum_kernel(benchmark::State& state) {
  const at::Tensor values = wide({state.range(0)});
  for (auto _ : state)
    benchmark::DoNotOptimize(exact_squared_sum(elements<float>(values)));
  set_bytes(state, values.numel() * 4);
}

void add_fixed_kernel(benchmark::State& state) {
  const at::Tensor values = wide({state.range(0)});
  const at::Tensor sum = at::zeros({state.range(0)}, at::kLong);
  for (auto _ : state)
    add_fixed<float>(elements<float>(values), {}, elements<std::int64_t>(sum));
  set_bytes(state, values.numel() * 20);
}

void squared_sum_composed(benchmark::State& state) {
  const at::Tensor values = wide({state.range(0)});
  for (auto _ : state)
    benchmark::DoNotOptimize(at::linalg_vector_norm(values, 2).item<float>());
  set_bytes(state, values.numel() * 4);
}

void all_finite_kernel(benchmark::State& state) {
  const at::Tensor values = wide({state.range(0)});
  for (auto _ : state)
    benchmark::DoNotOptimize(all_finite<float>(elements<float>(values)));
  set_bytes(state, values.numel() * 4);
}

void all_finite_composed(benchmark::State& state) {
  const at::Tensor values = wide({state.range(0)});
  for (auto _ : state)
    benchmark::DoNotOptimize(values.isfinite().all().item<bool>());
  set_bytes(state, values.numel() * 4);
}

void convert_kernel(benchmark::State& state) {
  const at::Tensor source = wide({state.range(0)}), target = narrow({state.range(0)});
  for (auto _ : state)
    convert(elements<float>(source), elements<bf16>(target));
  set_bytes(state, source.numel() * 6);
}

void convert_composed(benchmark::State& state) {
  const at::Tensor source = wide({state.range(0)}), target = narrow({state.range(0)});
  for (auto _ : state)
    target.copy_(source);
  set_bytes(state, source.numel() * 6);
}

void accumulate_kernel(benchmark::State& state) {
  const at::Tensor source = narrow({state.range(0)}), target = wide({state.range(0)});
  for (auto _ : state)
    accumulate(elements<bf16>(source), elements<float>(target));
  set_bytes(state, source.numel() * 10);
}

void accumulate_composed(benchmark::State& state) {
  const at::Tensor source = narrow({state.range(0)}), target = wide({state.range(0)});
  for (auto _ : state)
    target.add_(source);
  set_bytes(state, source.numel() * 10);
}

void pairs(benchmark::internal::Benchmark* bench, std::initializer_list<std::int64_t> widths) {
  for (const std::int64_t width : widths)
    bench->Args({2048, width});
  bench->UseRealTime()->Unit(benchmark::kMicrosecond);
}

void model_dims(benchmark::internal::Benchmark* bench) {
  pairs(bench, {512, 768});
}
void features(benchmark::internal::Benchmark* bench) {
  pairs(bench, {1376, 3072});
}
void vocabularies(benchmark::internal::Benchmark* bench) {
  bench->Args({1024, 32000})->Args({256, 128256})->UseRealTime()->Unit(benchmark::kMicrosecond);
}
void flat(benchmark::internal::Benchmark* bench) {
  bench->Arg(1 << 24)->UseRealTime()->Unit(benchmark::kMicrosecond);
}

BENCHMARK(rms_norm_kernel)->Apply(model_dims);
BENCHMARK(rms_norm_composed)->Apply(model_dims);
BENCHMARK(rms_norm_backward_kernel)->Apply(model_dims);
BENCHMARK(rms_norm_backward_composed)->Apply(model_dims);
BENCHMARK(rope_kernel)->Apply(model_dims);
BENCHMARK(rope_composed)->Apply(model_dims);
BENCHMARK(swiglu_kernel)->Apply(features);
BENCHMARK(swiglu_composed)->Apply(features);
BENCHMARK(swiglu_backward_kernel)->Apply(features);
BENCHMARK(swiglu_backward_composed)->Apply(features);
BENCHMARK(cross_entropy_kernel)->Apply(vocabularies);
BENCHMARK(cross_entropy_composed)->Apply(vocabularies);
BENCHMARK(embedding_backward_kernel)->Apply(model_dims);
BENCHMARK(embedding_backward_composed)->Apply(model_dims);
BENCHMARK(adamw_kernel)->Apply(flat);
BENCHMARK(adamw_composed)->Apply(flat);
BENCHMARK(squared_sum_kernel)->Apply(flat);
BENCHMARK(exact_squared_sum_kernel)->Apply(flat);
BENCHMARK(add_fixed_kernel)->Apply(flat);
BENCHMARK(squared_sum_composed)->Apply(flat);
BENCHMARK(all_finite_kernel)->Apply(flat);
BENCHMARK(all_finite_composed)->Apply(flat);
BENCHMARK(convert_kernel)->Apply(flat);
BENCHMARK(convert_composed)->Apply(flat);
BENCHMARK(accumulate_kernel)->Apply(flat);
BENCHMARK(accumulate_composed)->Apply(flat);

}  // namespace
}  // namespace finetune::kernels
