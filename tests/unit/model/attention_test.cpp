// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <tuple>
#include <vector>

#include "model/ops.hpp"
#include "model/rope.hpp"
#include "support/weights.hpp"
#include "unit/model/cached.hpp"

namespace finetune::model::attention_test {
namespace {

using tests::expect_within;
using tests::normal;
using tests::TinyWeights;

const Architecture architecture = tests::rotary(4, 100);

at::Tensor without_cache(const at::Tensor& qkv, const AttentionShape& shape, std::int64_t batch,
                         Path path) {
  TinyWeights weights({});
  const Sequence sequence = make_sequence(architecture, batch, qkv.size(0) / batch);
  return Ops(weights, path).attention(qkv.clone(), shape, sequence, 0);
}

/// A plain softmax over earlier tokens, in double, without positions.
at::Tensor plain(const at::Tensor& qkv, const AttentionShape& shape) {
  const std::int64_t length = qkv.size(0), size = shape.head_size;
  const at::Tensor wide = qkv.to(at::kDouble);
  std::vector<at::Tensor> heads;
  for (std::int64_t head = 0; head < shape.num_heads; ++head) {
    const std::int64_t group = head / (shape.num_heads / shape.num_kv_heads);
    const auto part = [&](std::int64_t i) { return wide.narrow(1, i * size, size); };
    const at::Tensor k = part(shape.num_heads + group);
    const at::Tensor v = part(shape.num_heads + shape.num_kv_heads + group);
    const at::Tensor later = at::ones({length, length}, at::kBool).triu(1);
    const at::Tensor scores = (at::mm(part(head), k.t()) / std::sqrt(static_cast<double>(size)))
                                  .masked_fill(later, -std::numeric_limits<double>::infinity());
    heads.push_back(at::mm(at::softmax(scores, 1), v));
  }
  return at::cat(heads, 1);
}

class AttentionOf : public testing::TestWithParam<std::tuple<std::int64_t, Path>> {
 protected:
  const AttentionShape shape_{
      .num_heads = 4, .num_kv_heads = std::get<0>(GetParam()), .head_size = 4};
  Path path() const { return std::get<1>(GetParam()); }
  at::Tensor qkv(std::int64_t tokens) const {
    return normal({tokens, (4 + 2 * shape_.num_kv_heads) * 4}, 3);
  }
};

TEST_P(AttentionOf, IsASoftmaxOverEarlierTokens) {
  const at::Tensor input = qkv(6);
  TinyWeights weights({});
  Sequence still = make_sequence(architecture, 1, 6);
  still.tables.cos.fill_(1);
  still.tables.sin.fill_(0);
  expect_within(Ops(weights, path()).attention(input.clone(), shape_, still, 0),
                plain(input, shape_), 1e-6);
}

TEST_P(AttentionOf, SequencesOfABatchDoNotSeeEachOther) {
  const at::Tensor input = qkv(10);
  const at::Tensor both = without_cache(input, shape_, 2, path());
  expect_within(both.narrow(0, 0, 5), without_cache(input.narrow(0, 0, 5), shape_, 1, path()),
                1e-6);
  expect_within(both.narrow(0, 5, 5), without_cache(input.narrow(0, 5, 5), shape_, 1, path()),
                1e-6);
}

TEST_P(AttentionOf, WithACacheIsThatWithoutOne) {
  const at::Tensor input = qkv(9);
  const at::Tensor expected = without_cache(input, shape_, 1, path());
  for (const std::vector<std::int64_t>& passes : std::vector<std::vector<std::int64_t>>{
           {9}, {3, 1, 1, 2, 1, 1}, {1, 1, 1, 1, 1, 1, 1, 1, 1}, {2, 7}}) {
    expect_within(tests::with_cache(architecture, input, shape_, passes, path()), expected, 1e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(KeyHeads, AttentionOf,
                         testing::Combine(testing::Values(1, 2, 4),
                                          testing::Values(Path::kernels, Path::composed)));

}  // namespace
}  // namespace finetune::model::attention_test
