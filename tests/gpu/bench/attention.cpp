// SPDX-License-Identifier: Apache-2.0
// Attention by who computes it and by length: 32 query heads and 8 key heads of 128, 16,384 tokens.
#include <ATen/Context.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "gpu/bench/measure.hpp"
#include "gpu/device_under_test.hpp"
#include "model/activations.hpp"
#include "model/attention_sinks.hpp"
#include "model/rope.hpp"

namespace finetune::tests::gpu {
namespace {

constexpr std::int64_t head_size = 128;

struct Case {
  std::string name;
  std::int64_t length = 0;  ///< of each row
  std::int64_t tokens = 0;  ///< of all rows
  at::ScalarType dtype = at::kBFloat16;
  model::Path path = model::Path::kernels;
  std::int64_t window = 0;
  std::vector<model::Stretch> stretches = {};
};

/// Pairs of a query and a key that it sees.
double pairs(const Case& c) {
  const auto of = [&](std::int64_t length) {
    double sum = 0;
    for (std::int64_t i = 1; i <= length; ++i)
      sum += static_cast<double>(c.window > 0 ? std::min(i, c.window) : i);
    return sum;
  };
  if (c.stretches.empty()) return of(c.length) * static_cast<double>(c.tokens / c.length);
  double sum = 0;
  for (const model::Stretch& stretch : c.stretches)
    sum += of(stretch.length);
  return sum;
}

void attention(Bench& bench, const Case& c) {
  const model::AttentionShape shape{.num_heads = bench.size(32, 4),
                                    .num_kv_heads = bench.size(8, 2),
                                    .head_size = head_size,
                                    .window = c.window};
  // Two products forward, five backward.
  const double product = 2 * pairs(c) * static_cast<double>(shape.num_heads * shape.head_size);
  const auto prepare = [&bench, &c, shape] {
    model::Sequence sequence;
    sequence.batch = c.tokens / c.length;
    sequence.length = c.length;
    sequence.stretches = c.stretches;
    return std::pair(bench.numbers({c.tokens, shape.num_channels()}, c.dtype), sequence);
  };
  bench.time(fmt::format("attention/{}/forward", c.name), {.flops = 2 * product},
             [&, shape]() -> Bench::Timed {
               const auto [qkv, sequence] = prepare();
               return [qkv = qkv, sequence = sequence, shape, path = c.path] {
                 static_cast<void>(model::attend_pass(qkv, shape, sequence, {}, path));
               };
             });
  bench.time(
      fmt::format("attention/{}/backward", c.name), {.flops = 5 * product},
      [&, shape]() -> Bench::Timed {
        const auto [qkv, sequence] = prepare();
        const auto attended = model::attend_pass(qkv, shape, sequence, {}, c.path);
        const at::Tensor d_out = bench.numbers({c.tokens, shape.num_heads * head_size}, c.dtype);
        return [qkv = qkv, sequence = sequence, shape, attended, d_out, path = c.path] {
          static_cast<void>(
              model::attend_pass_backward(d_out, qkv, shape, sequence, attended, {}, path));
        };
      });
}

/// A length that cuDNN has not seen is planned; one that it has seen is not.
void new_shapes_of_cudnn(Bench& bench) {
  for (const std::int64_t length : {1000, 1008, 1008}) {
    bench.once(
        fmt::format("attention/cudnn_length_{}", length),
        [&bench, length] {
          const at::Tensor q = bench.numbers({4, 32, length, head_size});
          static_cast<void>(at::_scaled_dot_product_cudnn_attention(
              q, q, q, {}, /*compute_log_sumexp=*/true, 0.0, /*is_causal=*/true));
        },
        Where::cuda);
  }
  for (const std::int64_t length : {2048, 8192}) {
    const auto n = static_cast<double>(length);
    bench.time(
        fmt::format("attention/cudnn_{}/forward", length),
        {.flops = 2 * 2 * (n * n / 2) * (16384 / n) * 32 * head_size},
        [&bench, length]() -> Bench::Timed {
          const at::Tensor q = bench.numbers({16384 / length, 32, length, head_size});
          return [q] {
            static_cast<void>(at::_scaled_dot_product_cudnn_attention(q, q, q, {}, true, 0.0,
                                                                      /*is_causal=*/true));
          };
        },
        Where::cuda);
  }
}

std::vector<model::Stretch> samples_of(std::int64_t tokens, std::int64_t length) {
  std::vector<model::Stretch> all;
  for (std::int64_t begin = 0; begin < tokens; begin += length)
    all.push_back({begin, length, false});
  return all;
}

}  // namespace

void bench_attention(Bench& bench) {
  const std::int64_t tokens = bench.size(16384, 128);
  const auto fitting = [&](std::int64_t length) { return bench.is_tiny() ? 64 : length; };
  for (const std::int64_t length : {1024, 2048, 4096, 8192, 16384})
    attention(
        bench,
        {.name = fmt::format("flash_{}", length), .length = fitting(length), .tokens = tokens});
  attention(
      bench,
      {.name = "flash_32768", .length = bench.size(32768, 128), .tokens = bench.size(32768, 128)});
  attention(bench, {.name = "flash_packed_512",
                    .length = tokens,
                    .tokens = tokens,
                    .stretches = samples_of(tokens, bench.size(512, 32))});
  attention(bench, {.name = "flash_window_4096_of_16384",
                    .length = tokens,
                    .tokens = tokens,
                    .window = bench.size(4096, 32)});
  attention(bench, {.name = "efficient_fp32_2048",
                    .length = fitting(2048),
                    .tokens = tokens,
                    .dtype = at::kFloat});
  attention(bench, {.name = "composed_bf16_2048",
                    .length = fitting(2048),
                    .tokens = tokens,
                    .path = model::Path::composed});
  {
    at::globalContext().setDeterministicAlgorithms(false, false);
    for (const std::int64_t length : {2048, 8192})
      attention(bench, {.name = fmt::format("flash_{}_any_order", length),
                        .length = fitting(length),
                        .tokens = tokens});
    new_shapes_of_cudnn(bench);
    at::globalContext().setDeterministicAlgorithms(true, false);
  }
}

}  // namespace finetune::tests::gpu
