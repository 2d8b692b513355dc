// SPDX-License-Identifier: Apache-2.0
// What an optimizer's step does to the elements of a unit, next to libtorch's own kernels.
#include <utility>
#include <vector>

#include "gpu/bench/measure.hpp"
#include "gpu/device_under_test.hpp"
#include "kernels/composed.hpp"
#include "kernels/composed_adamw8bit.hpp"
#include "kernels/composed_lion.hpp"

namespace finetune::tests::gpu {
namespace {

namespace composed = kernels::composed;

struct State {
  at::Tensor weight, first, second, gradient;

  State(const Bench& bench, std::int64_t n)
      : weight(bench.numbers({n}, at::kFloat)),
        first(at::zeros_like(weight)),
        second(at::zeros_like(weight)),
        gradient(bench.numbers({n}, at::kFloat)) {}
};

void adamw(Bench& bench, std::int64_t n) {
  // Reads weight, moments and gradient, writes all but the gradient.
  const Work work{.bytes = 28.0 * static_cast<double>(n)};
  bench.time("adamw/ours", work, [&bench, n]() -> Bench::Timed {
    return [s = State(bench, n)]() mutable {
      composed::adamw_(s.weight, s.first, s.second, s.gradient,
                       {1e-4, 0.9, 0.95, 1e-8, 0.1, 5, 0.5});
    };
  });
  bench.time(
      "adamw/libtorch", work,
      [&bench, n]() -> Bench::Timed {
        const at::Tensor step = at::ones({}, at::TensorOptions(at::kFloat).device(device()));
        return [s = State(bench, n), step]() mutable {
          at::_fused_adamw_({s.weight}, {s.gradient}, {s.first}, {s.second}, {}, {step}, 1e-4, 0.9,
                            0.95, 0.1, 1e-8, /*amsgrad=*/false, /*maximize=*/false);
        };
      },
      Where::cuda);
  bench.time("adamw/ours_rounding_bf16", {.bytes = 16.0 * static_cast<double>(n)},
             [&bench, n]() -> Bench::Timed {
               State state(bench, n);
               for (at::Tensor* tensor : {&state.weight, &state.first, &state.second})
                 *tensor = tensor->to(at::kBFloat16);
               return [s = std::move(state)]() mutable {
                 composed::AdamWNumbers numbers{1e-4, 0.9, 0.95, 1e-8, 0.1, 5};
                 numbers.rounding = kernels::RoundingKey{1, 5};
                 composed::adamw_(s.weight, s.first, s.second, s.gradient, numbers);
               };
             });
}

void others(Bench& bench, std::int64_t n) {
  bench.time("lion/ours", {.bytes = 20.0 * static_cast<double>(n)}, [&bench, n]() -> Bench::Timed {
    return [s = State(bench, n)]() mutable {
      composed::lion_(s.weight, s.first, s.gradient, {1e-4, 0.9, 0.99, 0.1});
    };
  });
  bench.time(
      "adamw8bit/ours", {.bytes = 16.0 * static_cast<double>(n)}, [&bench, n]() -> Bench::Timed {
        const State state(bench, n);
        const auto options = state.weight.options();
        const std::int64_t blocks = (n + kernels::moment_block - 1) / kernels::moment_block;
        const composed::Moments8bit moments{
            at::zeros({n}, options.dtype(at::kByte)), at::zeros({n}, options.dtype(at::kByte)),
            at::zeros({blocks}, options), at::zeros({blocks}, options)};
        const std::vector<kernels::DecayRun> runs{{0, n, 0.1}};
        return [s = state, moments, runs]() mutable {
          composed::adamw8bit_(s.weight, moments, s.gradient, {1e-4, 0.9, 0.95, 1e-8, 0.0, 5},
                               runs);
        };
      });
  bench.time(
      "squared_sum/ours", {.bytes = 4.0 * static_cast<double>(n)}, [&bench, n]() -> Bench::Timed {
        return
            [x = bench.numbers({n}, at::kFloat)] { static_cast<void>(composed::squared_sum(x)); };
      });
  bench.time("squared_sum/libtorch_norm", {.bytes = 4.0 * static_cast<double>(n)},
             [&bench, n]() -> Bench::Timed {
               return [x = bench.numbers({n}, at::kFloat)] {
                 static_cast<void>(at::linalg_vector_norm(x, 2));
               };
             });
}

}  // namespace

void bench_updates(Bench& bench) {
  // A block of an 8B model.
  const std::int64_t n = bench.size(218'112'000, 5000);
  adamw(bench, n);
  others(bench, n);
}

}  // namespace finetune::tests::gpu
