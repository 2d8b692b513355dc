// SPDX-License-Identifier: Apache-2.0
// What is between the products: as the program computes it, next to libtorch's own kernels. Rates
// count what has to be read and written once, so the copy of the same run is what memory allows;
// how much longer than planned a pass takes is what to correct in the plan (model::PassBytes).
#include "gpu/bench/measure.hpp"
#include "gpu/device_under_test.hpp"
#include "kernels/composed.hpp"
#include "kernels/composed_packed.hpp"
#include "kernels/gpu_kernels.hpp"
#include "model/activations.hpp"
#include "model/cost/projection_shape.hpp"
#include "model/detail/norms.hpp"

namespace finetune::tests::gpu {
namespace {

namespace composed = kernels::composed;

/// Of a bf16 run on this device, per element.
model::PassBytes planned() {
  const bool is_composed = !kernels::has_kernels_for_gpus();
  return model::pass_bytes({.compute = core::DType::bf16,
                            .is_composed = is_composed,
                            .has_norms = is_composed,
                            .on_gpu = true});
}

Work pass(double bytes, std::int64_t elements, double planned_bytes) {
  return {.bytes = bytes, .planned_bytes = planned_bytes * static_cast<double>(elements)};
}

void norms(Bench& bench) {
  const std::int64_t n = bench.size(8192, 32), d = bench.size(4096, 64);
  const auto bytes = static_cast<double>(2 * n * d);
  const at::Tensor x = bench.numbers({n, d}), w = bench.numbers({d}), dy = bench.numbers({n, d});
  bench.time("rms_norm/ours/forward", pass(2 * bytes, n * d, planned().norm),
             [&]() -> Bench::Timed {
               return [=] {
                 static_cast<void>(model::rms_norm_forward(x, {}, w, 1e-5, model::Path::kernels));
               };
             });
  bench.time(
      "rms_norm/ours/backward", pass(4 * bytes, n * d, planned().norm_backward),
      [&]() -> Bench::Timed {
        const auto normed = model::rms_norm_forward(x, {}, w, 1e-5, model::Path::kernels);
        return [=] {
          static_cast<void>(model::rms_norm_backward(normed, dy, dy, w, model::Path::kernels));
        };
      });
  bench.time(
      "rms_norm/libtorch/forward", {.bytes = 2 * bytes},
      [&]() -> Bench::Timed {
        return [=] { static_cast<void>(at::_fused_rms_norm(x, {d}, w, 1e-5)); };
      },
      Where::cuda);
  bench.time(
      "rms_norm/libtorch/backward", {.bytes = 3 * bytes},
      [&]() -> Bench::Timed {
        const auto [y, rstd] = at::_fused_rms_norm(x, {d}, w, 1e-5);
        return [=, rstd = rstd] {
          static_cast<void>(at::_fused_rms_norm_backward(dy, x, {d}, rstd, w, {true, true}));
        };
      },
      Where::cuda);
}

void activations(Bench& bench) {
  const std::int64_t n = bench.size(8192, 32), f = bench.size(14336, 64);
  const auto bytes = static_cast<double>(2 * n * f);
  const at::Tensor gate_up = bench.numbers({n, 2 * f}), dy = bench.numbers({n, f});
  bench.time(
      "swiglu/ours/forward", pass(3 * bytes, n * f, planned().swiglu), [&]() -> Bench::Timed {
        return [=] { static_cast<void>(model::activate(gate_up, {}, model::Path::kernels)); };
      });
  bench.time("swiglu/ours/backward", pass(5 * bytes, n * f, planned().swiglu_backward),
             [&]() -> Bench::Timed {
               return [=] {
                 static_cast<void>(model::activate_backward(dy, gate_up, {}, model::Path::kernels));
               };
             });
  bench.time("swiglu/libtorch/forward", {.bytes = 3 * bytes}, [&]() -> Bench::Timed {
    return [=] {
      const auto halves = gate_up.chunk(2, 1);
      static_cast<void>(at::silu(halves[0]).mul_(halves[1]));
    };
  });
}

void rope(Bench& bench) {
  const std::int64_t n = bench.size(8192, 32), heads = bench.size(32, 2), kv = bench.size(8, 1);
  const auto bytes = static_cast<double>(2 * n * (heads + kv) * 128);
  const Work work = pass(2 * bytes, n * (heads + kv) * 128, planned().rope);
  bench.time("rope/ours", work, [&]() -> Bench::Timed {
    at::Tensor qkv = bench.numbers({n, (heads + 2 * kv) * 128});
    model::Sequence sequence;
    sequence.tables.cos = sequence.tables.sin = bench.numbers({n, 64}, at::kFloat);
    sequence.positions = at::arange(n, at::TensorOptions(at::kLong).device(device()));
    const model::AttentionShape shape{.num_heads = heads, .num_kv_heads = kv, .head_size = 128};
    return [=]() mutable {
      model::rotate(qkv, shape, sequence, model::RotateBy::angle, model::Path::kernels);
    };
  });
}

void loss(Bench& bench) {
  const std::int64_t n = bench.size(1024, 32), v = bench.size(128'256, 128);
  const auto bytes = static_cast<double>(2 * n * v);
  const at::TensorOptions there = at::TensorOptions().device(device());
  const at::Tensor targets = at::arange(n, there.dtype(at::kLong)).remainder(v),
                   scales = at::ones({n}, there.dtype(at::kFloat));
  const Work work = pass(2 * bytes, n * v, planned().logit);
  bench.time("loss/ours/forward_and_backward", work, [&]() -> Bench::Timed {
    // Gradients take the place of logits: as good as others.
    at::Tensor logits = bench.numbers({n, v});
    model::LabelScores scores{at::empty_like(scales), at::empty_like(targets, at::kBool)};
    return [=]() mutable {
      model::score_labels(logits, targets, scales, scores, model::Path::kernels);
    };
  });
  bench.time("loss/libtorch/forward_alone", {.bytes = bytes}, [&]() -> Bench::Timed {
    const at::Tensor logits = bench.numbers({n, v});
    return [=] { static_cast<void>(at::cross_entropy_loss(logits, targets)); };
  });
}

void embedding(Bench& bench) {
  const std::int64_t n = bench.size(8192, 32), v = bench.size(128'256, 128),
                     d = bench.size(4096, 64);
  const at::Tensor ids =
      at::arange(n, at::TensorOptions(at::kLong).device(device())).mul_(7919).remainder_(v);
  const auto bytes = static_cast<double>(2 * n * d);
  bench.time("embedding/ours/backward", {.bytes = 3 * bytes}, [&]() -> Bench::Timed {
    const at::Tensor dy = bench.numbers({n, d});
    const at::Tensor gradient = at::zeros({v, d}, dy.options());
    return [=] { model::embedding_gradient(ids, dy, gradient, true, model::Path::kernels); };
  });
}

void packed(Bench& bench) {
  const std::int64_t rows = bench.size(14336, 64), columns = bench.size(4096, 64),
                     n = rows * columns, blocks = n / 64;
  const at::TensorOptions bytes = at::TensorOptions(at::kByte).device(device());
  bench.time("nf4/ours/nested", pass(2.5 * static_cast<double>(n), n, planned().unpacked),
             [&]() -> Bench::Timed {
               const composed::Nf4Maxima maxima{
                   .values = {},
                   .codes = at::arange(blocks, bytes.dtype(at::kLong)).to(at::kByte),
                   .nested = bench.numbers({(blocks + 255) / 256}, at::kFloat).abs(),
                   .offset = at::ones({1}, bytes.dtype(at::kFloat))};
               const at::Tensor codes = at::arange(n / 2, bytes.dtype(at::kInt)).to(at::kByte);
               return [=] {
                 static_cast<void>(composed::nf4_dequantize(codes, maxima, n, at::kBFloat16));
               };
             });
  const std::int64_t tokens = bench.size(8192, 32);
  const at::Tensor x = bench.numbers({tokens, columns});
  const auto moved = static_cast<double>(4 * tokens * columns);
  bench.time("dropout/ours", {.bytes = moved}, [&]() -> Bench::Timed {
    const model::DropoutMask mask{
        .p = 0.05, .seed = 1, .tokens_N = at::arange(tokens, bytes.dtype(at::kLong))};
    return [=] { static_cast<void>(model::dropout(x, mask, 3, model::Path::kernels)); };
  });
  bench.time(
      "dropout/libtorch", {.bytes = moved},
      [&]() -> Bench::Timed {
        return [=] { static_cast<void>(at::native_dropout(x, 0.05, true)); };
      },
      Where::cuda);
}

}  // namespace

void bench_ops(Bench& bench) {
  norms(bench);
  activations(bench);
  rope(bench);
  loss(bench);
  embedding(bench);
  packed(bench);
}

}  // namespace finetune::tests::gpu
