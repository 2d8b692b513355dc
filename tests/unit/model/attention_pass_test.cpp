// SPDX-License-Identifier: Apache-2.0
// Attention where samples share a row, and where layers see a window or a chunk, against a plain
// softmax with a mask.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <limits>

#include "model/ops.hpp"
#include "model/rope.hpp"
#include "support/weights.hpp"
#include "unit/model/cached.hpp"

namespace finetune::model::attention_pass_test {
namespace {

using tests::expect_within;
using tests::normal;
using tests::TinyWeights;

const Architecture architecture = tests::rotary(8, 100);

AttentionShape shape(std::int64_t window, std::int64_t chunk) {
  return {.num_heads = 4,
          .num_kv_heads = 2,
          .head_size = 8,
          .rotary = Rotary::none,
          .window = window,
          .chunk = chunk};
}

/// Whether token i sees token j, by the definition.
bool sees(const std::vector<Stretch>& stretches, const AttentionShape& s, std::int64_t i,
          std::int64_t j) {
  for (const Stretch& stretch : stretches) {
    const std::int64_t p = i - stretch.begin, q = j - stretch.begin;
    if (p < 0 || p >= stretch.length || q < 0 || q >= stretch.length) continue;
    return !stretch.is_padding && q <= p && (s.window == 0 || p - q < s.window) &&
           (s.chunk == 0 || p / s.chunk == q / s.chunk);
  }
  return false;
}

/// Softmax over what each token sees, in double; zero where it sees nothing.
at::Tensor plain(const at::Tensor& qkv, const AttentionShape& s,
                 const std::vector<Stretch>& stretches) {
  const std::int64_t n = qkv.size(0);
  at::Tensor hidden = at::ones({n, n}, at::kBool);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j)
      if (sees(stretches, s, i, j)) hidden[i][j].fill_(false);
  const at::Tensor wide = qkv.to(at::kDouble);
  std::vector<at::Tensor> heads;
  for (std::int64_t head = 0; head < s.num_heads; ++head) {
    const std::int64_t group = head / (s.num_heads / s.num_kv_heads);
    const auto part = [&](std::int64_t i) { return wide.narrow(1, i * s.head_size, s.head_size); };
    const at::Tensor scores = (at::mm(part(head), part(s.num_heads + group).t()) /
                               std::sqrt(static_cast<double>(s.head_size)))
                                  .masked_fill(hidden, -1e300);
    const at::Tensor p = at::softmax(scores, 1).masked_fill(hidden, 0);
    heads.push_back(at::mm(p, part(s.num_heads + s.num_kv_heads + group)));
  }
  return at::cat(heads, 1);
}

struct Case {
  const char* name;
  std::int64_t batch, length, window, chunk;
  std::vector<Stretch> stretches;
};

std::vector<Stretch> of(const Case& c) {
  if (!c.stretches.empty()) return c.stretches;
  std::vector<Stretch> rows;
  for (std::int64_t row = 0; row < c.batch; ++row)
    rows.push_back({row * c.length, c.length, false});
  return rows;
}

class AttentionPass : public testing::TestWithParam<Case> {};

TEST_P(AttentionPass, IsThePlainSoftmaxWithItsGradient) {
  const Case& c = GetParam();
  const AttentionShape s = shape(c.window, c.chunk);
  const at::Tensor qkv = normal({c.batch * c.length, s.num_channels()}, 1).set_requires_grad(true);
  at::Tensor d = normal({c.batch * c.length, s.num_heads * s.head_size}, 2);
  // Padding that shares a row with one sample may see it: what nobody looks at is not compared.
  for (const Stretch& stretch : of(c))
    if (stretch.is_padding) d.narrow(0, stretch.begin, stretch.length).zero_();
  const at::Tensor expected = plain(qkv, s, of(c));
  const at::Tensor d_expected = torch::autograd::grad({expected}, {qkv}, {d.to(at::kDouble)})[0];

  for (const Path path : {Path::kernels, Path::composed}) {
    TinyWeights weights({});
    Ops ops(weights, path);
    const Sequence sequence = c.stretches.empty()
                                  ? make_sequence(architecture, c.batch, c.length)
                                  : make_sequence(architecture, c.batch, c.length, c.stretches);
    const at::Tensor input = qkv.detach().clone().set_requires_grad(true);
    const at::Tensor y = ops.attention(input * 1, s, sequence, 0);
    for (const Stretch& stretch : of(c)) {
      if (stretch.is_padding) continue;
      expect_within(y.narrow(0, stretch.begin, stretch.length),
                    expected.narrow(0, stretch.begin, stretch.length), 1e-5);
    }
    expect_within(torch::autograd::grad({y}, {input}, {d})[0], d_expected, 1e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, AttentionPass,
    testing::Values(
        Case{"Rows", 2, 7, 0, 0, {}},
        Case{"Padded", 2, 7, 0, 0, {{0, 5, false}, {5, 2, true}, {7, 7, false}}},
        Case{"Packed",
             2,
             9,
             0,
             0,
             {{0, 4, false}, {4, 1, false}, {5, 3, false}, {8, 1, true}, {9, 9, false}}},
        Case{"Window", 2, 150, 5, 0, {}}, Case{"WindowOfOne", 1, 70, 1, 0, {}},
        Case{"SmallWindow", 2, 5, 3, 0, {}}, Case{"WindowWiderThanItsPieces", 1, 300, 100, 0, {}},
        Case{"WindowOverPacked",
             1,
             160,
             8,
             0,
             {{0, 90, false}, {90, 3, false}, {93, 60, false}, {153, 7, true}}},
        Case{"Chunk", 2, 21, 0, 8, {}},
        Case{"ChunkOverPacked", 1, 20, 0, 4, {{0, 9, false}, {9, 10, false}, {19, 1, true}}}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(AttentionWithCache, KeepsToWindowAndChunk) {
  const at::Tensor qkv = normal({19, shape(0, 0).num_channels()}, 3);
  for (const auto& s : {shape(0, 0), shape(4, 0), shape(0, 6)}) {
    const at::Tensor expected = plain(qkv, s, {{0, 19, false}});
    for (const Path path : {Path::kernels, Path::composed}) {
      expect_within(tests::with_cache(architecture, qkv, s, {11, 1, 1, 1, 1, 1, 1, 1, 1}, path),
                    expected, 1e-5);
      expect_within(tests::with_cache(architecture, qkv, s, {5, 8, 6}, path), expected, 1e-5);
    }
  }
}

TEST(AttentionOfPackedSamples, IsThatOfEachAlone) {
  // Positions begin anew, so that a sample's numbers are those it has in a row of its own.
  AttentionShape s = shape(0, 0);
  s.rotary = Rotary::halves;
  const at::Tensor qkv = normal({9, s.num_channels()}, 1);
  TinyWeights weights({});
  Ops ops(weights);
  const at::Tensor packed = ops.attention(
      qkv.clone(), s, make_sequence(architecture, 1, 9, {{0, 4, false}, {4, 5, false}}), 0);
  for (const auto& [begin, length] : {std::pair(0, 4), std::pair(4, 5)}) {
    const at::Tensor alone = ops.attention(qkv.narrow(0, begin, length).clone(), s,
                                           make_sequence(architecture, 1, length), 0);
    expect_within(packed.narrow(0, begin, length), alone, 1e-6);
  }
}

}  // namespace
}  // namespace finetune::model::attention_pass_test
