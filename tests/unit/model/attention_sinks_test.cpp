// SPDX-License-Identifier: Apache-2.0
// Sinks against a softmax with one more logit, differentiated by autograd, whichever kernel
// attends.
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "model/ops.hpp"
#include "model/rope.hpp"
#include "support/weights.hpp"

namespace finetune::model::attention_sinks_test {
namespace {

using tests::expect_within;
using tests::normal;
using tests::TinyWeights;

constexpr std::int64_t heads = 4, kv_heads = 2, size = 16;

struct Variant {
  std::string name;
  std::int64_t window = 0;
  bool is_packed = false;
  at::ScalarType dtype = at::kFloat;
  Path path = Path::kernels;
};

void PrintTo(const Variant& of, std::ostream* out) {
  *out << of.name;
}

/// 2 rows of 40 tokens; packed: of 25 and 15, and of 33 with padding.
constexpr std::int64_t batch = 2, length = 40, tokens = batch * length;
std::vector<Stretch> stretches(bool is_packed) {
  if (!is_packed) return {{0, length, false}, {length, length, false}};
  return {{0, 25, false}, {25, 15, false}, {40, 33, false}, {73, 7, true}};
}

Sequence sequence_of(bool is_packed) {
  const Architecture a = tests::rotary(size, 100);
  if (!is_packed) return make_sequence(a, batch, length);
  return make_sequence(a, batch, length, stretches(true), at::kCPU);
}

AttentionShape shape_of(std::int64_t window) {
  return {.num_heads = heads,
          .num_kv_heads = kv_heads,
          .head_size = size,
          .rotary = Rotary::none,
          .window = window,
          .sinks = 0};
}

/// As the papers write it, in fp32; zeros for padding.
at::Tensor reference(const at::Tensor& qkv, const at::Tensor& sinks, const Variant& v) {
  at::Tensor all = at::zeros({tokens, heads * size});
  std::vector<at::Tensor> rows;
  for (const Stretch& s : stretches(v.is_packed)) {
    if (s.is_padding) {
      rows.push_back(at::zeros({s.length, heads * size}));
      continue;
    }
    const at::Tensor own = qkv.narrow(0, s.begin, s.length);
    const auto part = [&](std::int64_t first, std::int64_t num) {
      return own.narrow(1, first * size, num * size)
          .view({s.length, num, size})
          .transpose(0, 1)
          .repeat_interleave(heads / num, 0);
    };
    const at::Tensor q = part(0, heads), k = part(heads, kv_heads);
    const at::Tensor value = part(heads + kv_heads, kv_heads);
    const at::Tensor i = at::arange(s.length);
    at::Tensor hidden = i.unsqueeze(0).gt(i.unsqueeze(1));
    if (v.window > 0) hidden = hidden.logical_or(i.unsqueeze(0).le(i.unsqueeze(1) - v.window));
    const at::Tensor scores = (at::matmul(q, k.transpose(1, 2)) / 4.0)
                                  .masked_fill(hidden, -std::numeric_limits<float>::infinity());
    const at::Tensor sink = sinks.view({heads, 1, 1}).expand({heads, s.length, 1});
    const at::Tensor p = at::cat({scores, sink}, 2).softmax(2).narrow(2, 0, s.length);
    rows.push_back(at::matmul(p, value).transpose(0, 1).flatten(1));
  }
  return at::cat(rows);
}

class SinksOf : public testing::TestWithParam<Variant> {};

TEST_P(SinksOf, AreOneMoreLogitWithAllGradients) {
  const Variant v = GetParam();
  const at::Tensor wide = normal({tokens, (heads + 2 * kv_heads) * size}, 1).to(v.dtype);
  const at::Tensor sinks = at::tensor({-1.0, 0.5, 2.0, 4.0}, at::kFloat).to(v.dtype);
  at::Tensor d_out = normal({tokens, heads * size}, 2).to(v.dtype);
  for (const Stretch& s : stretches(v.is_packed))
    if (s.is_padding) d_out.narrow(0, s.begin, s.length).zero_();
  const at::Tensor leaf = wide.to(at::kFloat).clone().set_requires_grad(true);
  const at::Tensor sink_leaf = sinks.to(at::kFloat).clone().set_requires_grad(true);
  const at::Tensor expected = reference(leaf, sink_leaf, v);
  const auto gradients =
      torch::autograd::grad({expected}, {leaf, sink_leaf}, {d_out.to(at::kFloat)});

  TinyWeights weights({sinks});
  Ops ops(weights, v.path);
  const at::Tensor qkv = wide.clone().set_requires_grad(true);
  const at::Tensor out = ops.attention(qkv * 1, shape_of(v.window), sequence_of(v.is_packed), 0);
  const auto d_qkv = torch::autograd::grad({out}, {qkv}, {d_out});
  const double part = v.dtype == at::kFloat ? 2e-6 : 2e-2;
  const auto trained = [&](const at::Tensor& x) {
    return v.is_packed ? x.narrow(0, 0, 73).to(at::kFloat) : x.to(at::kFloat);
  };
  expect_within(trained(out.detach()), trained(expected.detach()), part);
  expect_within(trained(d_qkv[0]), trained(gradients[0]), part);
  expect_within(weights.gradient_of(0).to(at::kFloat), gradients[1], part);
}

INSTANTIATE_TEST_SUITE_P(
    Kernels, SinksOf,
    testing::Values(Variant{"whole"}, Variant{"window", 8}, Variant{"packed", 0, true},
                    Variant{"packed_window", 8, true},
                    Variant{"composed_window", 8, true, at::kFloat, Path::composed},
                    Variant{"bf16", 0, false, at::kBFloat16},
                    Variant{"bf16_window", 8, true, at::kBFloat16},
                    Variant{"bf16_widened", 0, true, at::kBFloat16, Path::widened}),
    [](const testing::TestParamInfo<Variant>& info) { return info.param.name; });

TEST(FrozenSinks, GetNoGradient) {
  TinyWeights weights({at::zeros({heads})});
  weights.frozen = true;
  Ops ops(weights);
  const at::Tensor qkv = normal({tokens, (heads + 2 * kv_heads) * size}, 1).set_requires_grad(true);
  const at::Tensor out = ops.attention(qkv * 1, shape_of(0), sequence_of(false), 0);
  torch::autograd::grad({out.sum()}, {qkv});
  EXPECT_FALSE(weights.is_written(0));
}

/// A text that goes on token by token, and several tokens at once.
TEST(CachedSinks, AreThoseOfTheWholeText) {
  TinyWeights weights({at::tensor({-1.0, 0.5, 2.0, 4.0}, at::kFloat)});
  Ops ops(weights);
  const at::NoGradGuard no_gradient;
  const Architecture a = tests::rotary(size, 100);
  const at::Tensor qkv = normal({length, (heads + 2 * kv_heads) * size}, 5);
  for (const std::int64_t window : {0, 8}) {
    const at::Tensor whole =
        ops.attention(qkv.clone(), shape_of(window), make_sequence(a, 1, length), 0);
    KvCache cache;
    cache.layers.resize(1);
    for (const auto& [first, count] : {std::pair(0, 20), std::pair(20, 1), std::pair(21, 19)}) {
      const Sequence sequence = make_sequence(a, count, cache, at::kCPU);
      const at::Tensor out =
          ops.attention(qkv.narrow(0, first, count).clone(), shape_of(window), sequence, 0);
      cache.length += count;
      expect_within(out, whole.narrow(0, first, count), 2e-6);
    }
  }
}

}  // namespace
}  // namespace finetune::model::attention_sinks_test
