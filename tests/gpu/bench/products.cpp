// SPDX-License-Identifier: Apache-2.0
// Matrix products by dtype and shape, copies, and what a launch costs.
#include <fmt/format.h>

#include <string>
#include <utility>

#include "gpu/bench/measure.hpp"
#include "gpu/device_under_test.hpp"

namespace finetune::tests::gpu {
namespace {

struct Shape {
  const char* name;
  std::int64_t m, k, n;
};

void product(Bench& bench, const std::string& name, at::ScalarType dtype, const Shape& full) {
  const std::int64_t m = bench.size(full.m, 64), k = bench.size(full.k, 64),
                     n = bench.size(full.n, 64);
  const Work work{.flops = 2.0 * static_cast<double>(m) * static_cast<double>(k) *
                           static_cast<double>(n)};
  bench.time(name, work, [&bench, m, k, n, dtype]() -> Bench::Timed {
    const at::Tensor x = bench.numbers({m, k}, dtype), w = bench.numbers({n, k}, dtype);
    at::Tensor y = at::empty({m, n}, x.options());
    return [x, w, y]() mutable { at::mm_out(y, x, w.t()); };
  });
}

void fp8_product(Bench& bench, std::int64_t n) {
  const Work work{.flops = 2.0 * static_cast<double>(n * n) * static_cast<double>(n)};
  bench.time(
      "gemm/fp8/square", work,
      [&bench, n]() -> Bench::Timed {
        const at::Tensor x = bench.numbers({n, n}).to(at::kFloat8_e4m3fn),
                         w = bench.numbers({n, n}).to(at::kFloat8_e4m3fn);
        const at::Tensor one = at::ones({}, x.options().dtype(at::kFloat));
        return [x, w, one] {
          static_cast<void>(at::_scaled_mm(x, w.t(), one, one, {}, {}, at::kBFloat16, true));
        };
      },
      Where::cuda);
}

void copies(Bench& bench) {
  const std::int64_t count = bench.size(std::int64_t{1} << 30, 1 << 12);
  const auto bytes = static_cast<double>(count);
  const at::TensorOptions there = at::TensorOptions(at::kByte).device(device());
  bench.time(device_copy, {.bytes = 2 * bytes}, [=]() -> Bench::Timed {
    at::Tensor to = at::empty({count}, there);
    return [to, from = at::zeros({count}, there)]() mutable { to.copy_(from); };
  });
  const auto pinned = [=] {
    return at::empty({count}, at::TensorOptions(at::kByte).pinned_memory(true)).zero_();
  };
  bench.time("copy/host_to_device_pinned", {.bytes = bytes}, [=]() -> Bench::Timed {
    at::Tensor to = at::empty({count}, there);
    return [to, from = pinned()]() mutable { to.copy_(from, /*non_blocking=*/true); };
  });
  bench.time("copy/device_to_host_pinned", {.bytes = bytes}, [=]() -> Bench::Timed {
    at::Tensor to = pinned();
    return
        [to, from = at::zeros({count}, there)]() mutable { to.copy_(from, /*non_blocking=*/true); };
  });
}

}  // namespace

void bench_products(Bench& bench) {
  for (const auto& [name, dtype] : {std::pair("bf16", at::kBFloat16), std::pair("fp16", at::kHalf),
                                    std::pair("fp32", at::kFloat)})
    product(bench, fmt::format("gemm/{}/square", name), dtype, {"square", 8192, 8192, 8192});
  fp8_product(bench, bench.size(8192, 64));
  // One micro-batch of 8,192 tokens of an 8B and of a 1B model.
  for (const Shape& shape :
       {Shape{"8b_qkv", 8192, 4096, 6144}, Shape{"8b_out", 8192, 4096, 4096},
        Shape{"8b_gate_up", 8192, 4096, 28672}, Shape{"8b_down", 8192, 14336, 4096},
        Shape{"8b_head_chunk", 1024, 4096, 128256}, Shape{"1b_qkv", 8192, 2048, 2560},
        Shape{"1b_gate_up", 8192, 2048, 11264}})
    product(bench, fmt::format("gemm/bf16/{}", shape.name), at::kBFloat16, shape);
  copies(bench);
  bench.time("launch/1000_small_additions", {}, []() -> Bench::Timed {
    at::Tensor x = at::zeros({8}, at::TensorOptions(at::kFloat).device(device()));
    return [x]() mutable {
      for (int i = 0; i < 1000; ++i)
        x.add_(1);
    };
  });
}

}  // namespace finetune::tests::gpu
