// SPDX-License-Identifier: Apache-2.0
// The plan's bytes and operations of passes (model::PassBytes) beside what the compositions that
// run in the place of kernels move and launch: one element's share, counted on the simulated
// device.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "kernels/composed.hpp"
#include "kernels/composed_packed.hpp"
#include "model/activations.hpp"
#include "model/cost/projection_shape.hpp"
#include "model/detail/norms.hpp"
#include "model/device.hpp"
#include "model/fp8_products.hpp"
#include "simulated/device/counters.hpp"

namespace finetune::tests::simulated_traffic {
namespace {

namespace composed = kernels::composed;

constexpr std::int64_t tokens = 512, width = 256;

at::Tensor numbers(at::IntArrayRef sizes, at::ScalarType dtype = at::kBFloat16) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes)
    count *= size;
  const at::Tensor here = at::arange(count, at::kFloat).mul_(0.618).sin_().view(sizes).to(dtype);
  return here.to(model::compute_device(0));
}

struct Share {
  double bytes = 0;
  double launches = 0;
};

/// Of one of `elements`; launches of all together.
Share measured(std::int64_t elements, const std::function<void()>& pass) {
  const simulated::Totals before = simulated::Counters::here().totals();
  pass();
  const simulated::Totals after = simulated::Counters::here().totals();
  return {static_cast<double>(after.bytes - before.bytes) / static_cast<double>(elements),
          static_cast<double>(after.launches - before.launches)};
}

model::PassBytes planned() {
  return model::pass_bytes(
      {.compute = core::DType::bf16, .is_composed = true, .has_norms = true, .on_gpu = true});
}

/// Of norms and scales, numbers per row and per tile are not planned.
constexpr double slack = 0.15;

void expect_as_planned(const std::string& name, double bytes, const Share& share) {
  fmt::print("{:24} planned {:6.1f} bytes an element, moved {:6.1f}, in {} launches\n", name, bytes,
             share.bytes, share.launches);
  EXPECT_NEAR(share.bytes, bytes, slack * bytes) << name;
}

TEST(PlannedTraffic, OfNormsIsWhatTheyMove) {
  const at::Tensor x = numbers({tokens, width}), weight = numbers({width});
  model::Normed normed;
  expect_as_planned("norm", planned().norm, measured(tokens * width, [&] {
                      normed = model::rms_norm_forward(x, {}, weight, 1e-5, model::Path::kernels);
                    }));
  const at::Tensor dy = numbers({tokens, width}), residual = numbers({tokens, width});
  expect_as_planned("norm, backward", planned().norm_backward, measured(tokens * width, [&] {
                      model::rms_norm_backward(normed, dy, residual, weight, model::Path::kernels);
                    }));
}

TEST(PlannedTraffic, OfSwigluIsWhatItMoves) {
  const at::Tensor gate_up = numbers({tokens, 2 * width}), dy = numbers({tokens, width});
  const Share forward =
      measured(tokens * width, [&] { model::activate(gate_up, {}, model::Path::kernels); });
  expect_as_planned("swiglu", planned().swiglu, forward);
  const Share backward = measured(
      tokens * width, [&] { model::activate_backward(dy, gate_up, {}, model::Path::kernels); });
  expect_as_planned("swiglu, backward", planned().swiglu_backward, backward);
}

TEST(PlannedTraffic, OfRopeIsWhatItMoves) {
  const composed::RopeHeads heads{.query_heads = 8, .key_heads = 2, .head_size = 64};
  at::Tensor qkv = numbers({tokens, 12 * 64});
  const at::Tensor cos = numbers({tokens, 32}, at::kFloat), sin = numbers({tokens, 32}, at::kFloat);
  const at::Tensor positions = at::arange(tokens, at::kLong).to(model::compute_device(0));
  expect_as_planned("rope", planned().rope, measured(tokens * 10 * 64, [&] {
                      composed::rope_(qkv, cos, sin, positions, heads, kernels::Rotation::forward);
                    }));
}

TEST(PlannedTraffic, OfTheLossIsWhatItMoves) {
  const std::int64_t vocabulary = 4096, rows = 64;
  at::Tensor logits = numbers({rows, vocabulary});
  const at::Tensor targets = at::arange(rows, at::kLong).to(model::compute_device(0));
  const at::Tensor d_log_prob = numbers({rows}, at::kFloat);
  model::LabelScores scores;
  scores.log_prob_N = at::empty({rows}, d_log_prob.options());
  scores.is_first_N = at::empty({rows}, d_log_prob.options().dtype(at::kBool));
  expect_as_planned("logit", planned().logit, measured(rows * vocabulary, [&] {
                      model::score_labels(logits, targets, d_log_prob, scores,
                                          model::Path::kernels);
                    }));
}

TEST(PlannedTraffic, OfGradientsOfAnEmbeddingIsWhatTheyMove) {
  const at::Tensor gradient = numbers({tokens, width}), dy = numbers({tokens, width});
  const at::Tensor ids = at::arange(tokens, at::kLong).to(model::compute_device(0));
  expect_as_planned(
      "embedding, backward", planned().embedding_backward, measured(tokens * width, [&] {
        model::embedding_gradient(ids, dy, gradient, /*accumulate=*/true, model::Path::kernels);
      }));
}

TEST(PlannedTraffic, OfUnpackingIsWhatItMoves) {
  const std::int64_t count = 1 << 18;
  const at::Tensor codes =
      at::arange(count / 2, at::kInt).to(at::kByte).to(model::compute_device(0));
  const composed::Nf4Maxima maxima{.values = numbers({count / 64}, at::kFloat).abs()};
  expect_as_planned("nf4", planned().unpacked, measured(count, [&] {
                      composed::nf4_dequantize(codes, maxima, count, at::kBFloat16);
                    }));
}

TEST(PlannedTraffic, OfQuantisingIsWhatItMoves) {
  const at::Tensor x = numbers({tokens, width});
  for (const model::Tile& tile : {model::Tile{1, 0}, model::Tile{1, 128}, model::Tile{128, 128}})
    expect_as_planned("fp8", planned().to_fp8, measured(tokens * width, [&] {
                        model::quantise(x, at::kFloat8_e4m3fn, tile);
                      }));
}

// The plan counts the norm of gradients as one more pass over them.
TEST(PlannedTraffic, OfTheNormOfGradientsIsOneReadOfThem) {
  const std::int64_t count = (1 << 20) + 77;
  const at::Tensor gradient = numbers({count}, at::kFloat);
  double sum = 0;
  const Share share =
      measured(count, [&] { sum = composed::squared_sum(gradient).cpu().item<double>(); });
  expect_as_planned("squared sum", 4, share);
  EXPECT_LE(share.launches, 7);
  const double expected = composed::squared_sum(gradient.cpu()).item<double>();
  EXPECT_NEAR(sum, expected, 1e-6 * expected);
}

}  // namespace
}  // namespace finetune::tests::simulated_traffic
