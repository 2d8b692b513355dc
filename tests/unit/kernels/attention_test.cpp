// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention.hpp"

#include <tuple>

#include "kernels/composed.hpp"
#include "unit/kernels/tensors.hpp"

namespace finetune::kernels::test::attention_test {
namespace {

struct Tensors {
  at::Tensor q, k, v;  ///< [B, H, L, K], heads of a token beside each other
};

/// Views [B, heads, L, K] into [B L, heads K].
at::Tensor heads_in(const at::Tensor& x, std::int64_t first, std::int64_t num, std::int64_t samples,
                    std::int64_t size) {
  return x.narrow(1, first * size, num * size)
      .unflatten(0, {samples, -1})
      .unflatten(2, {num, size})
      .transpose(1, 2);
}

Tensors split(const at::Tensor& qkv, const CausalShape& s) {
  return {heads_in(qkv, 0, s.num_heads, s.num_samples, s.head_size),
          heads_in(qkv, s.num_heads, s.num_kv_heads, s.num_samples, s.head_size),
          heads_in(qkv, s.num_heads + s.num_kv_heads, s.num_kv_heads, s.num_samples, s.head_size)};
}

at::Tensor random_qkv(const CausalShape& s, std::uint64_t seed) {
  return normal<bf16>({s.num_samples * s.length, (s.num_heads + 2 * s.num_kv_heads) * s.head_size},
                      seed);
}

template <class T>
Heads<T> heads_of(const at::Tensor& x) {
  return {static_cast<T*>(x.data_ptr()), x.stride(0), x.stride(1), x.stride(2)};
}

struct Result {
  at::Tensor out, logsumexp;
};

Result forward(const at::Tensor& qkv, const CausalShape& s) {
  const Tensors in = split(qkv, s);
  const at::Tensor out =
      at::empty({s.num_samples * s.length, s.num_heads * s.head_size}, qkv.options());
  Result result{heads_in(out, 0, s.num_heads, s.num_samples, s.head_size),
                at::empty({s.num_samples, s.num_heads, s.length}, at::kFloat)};
  causal_attention({.shape = s,
                    .q = heads_of<const bf16>(in.q),
                    .k = heads_of<const bf16>(in.k),
                    .v = heads_of<const bf16>(in.v),
                    .out = heads_of<bf16>(result.out),
                    .logsumexp = result.logsumexp.data_ptr<float>()});
  return result;
}

/// The gradient of the fused qkv.
at::Tensor backward(const at::Tensor& d_out, const at::Tensor& qkv, const Result& result,
                    const CausalShape& s) {
  const at::Tensor d_qkv = at::empty_like(qkv);
  const Tensors in = split(qkv, s), d = split(d_qkv, s);
  causal_attention_backward({.shape = s,
                             .q = heads_of<const bf16>(in.q),
                             .k = heads_of<const bf16>(in.k),
                             .v = heads_of<const bf16>(in.v),
                             .out = heads_of<const bf16>(result.out),
                             .d_out = heads_of<const bf16>(d_out),
                             .logsumexp = result.logsumexp.data_ptr<float>(),
                             .d_q = heads_of<bf16>(d.q),
                             .d_k = heads_of<bf16>(d.k),
                             .d_v = heads_of<bf16>(d.v)});
  return d_qkv;
}

/// Heads of 16 are part of every shape that the kernel computes.
bool is_here() {
  return has_causal_attention({1, 1, 1, 1, 16});
}

#define SKIP_WITHOUT_KERNEL() \
  if (!is_here()) GTEST_SKIP() << "no products of bf16 in tiles on this machine"

class CausalAttentionOf : public ::testing::TestWithParam<CausalShape> {};

TEST_P(CausalAttentionOf, IsThatOfTheComposition) {
  SKIP_WITHOUT_KERNEL();
  const CausalShape s = GetParam();
  ASSERT_TRUE(has_causal_attention(s));
  const at::Tensor qkv = random_qkv(s, 1);
  const Tensors in = split(qkv, s);
  const auto expected = composed::attention(in.q, in.k, in.v, {.is_causal = true, .mask = {}});
  const Result result = forward(qkv, s);
  // A weight is rounded before the product, and so is its result.
  expect_within(result.out, expected.out, 1.0 / 128);
  expect_within(result.logsumexp, expected.logsumexp, 1e-5);

  const at::Tensor d_out = normal<bf16>({s.num_samples, s.length, s.num_heads, s.head_size}, 2);
  const auto d_expected =
      composed::attention_backward(d_out.transpose(1, 2), in.q, in.k, in.v,
                                   {result.out, result.logsumexp}, {.is_causal = true, .mask = {}});
  const Tensors d = split(backward(d_out.transpose(1, 2), qkv, result, s), s);
  expect_within(d.q, d_expected.q, 1.0 / 64);
  expect_within(d.k, d_expected.k, 1.0 / 64);
  expect_within(d.v, d_expected.v, 1.0 / 64);
}

INSTANTIATE_TEST_SUITE_P(Shapes, CausalAttentionOf,
                         testing::Values(CausalShape{1, 1, 1, 1, 16}, CausalShape{2, 5, 2, 2, 16},
                                         CausalShape{1, 63, 4, 2, 32}, CausalShape{2, 64, 4, 1, 64},
                                         CausalShape{1, 65, 2, 2, 80},
                                         CausalShape{1, 200, 3, 1, 128},
                                         CausalShape{1, 600, 2, 1, 64},
                                         CausalShape{1, 1100, 1, 1, 16}));

TEST(CausalAttention, AHeadDependsOnItsOwnInputsAlone) {
  SKIP_WITHOUT_KERNEL();
  const CausalShape both{2, 100, 4, 2, 32};
  CausalShape single = both;
  single.num_samples = 1;
  const at::Tensor qkv = random_qkv(both, 3);
  const at::Tensor d_out = normal<bf16>({2, 100, 4, 32}, 4).transpose(1, 2);
  const Result all = forward(qkv, both), second = forward(qkv.narrow(0, 100, 100), single);
  EXPECT_TRUE(same_bits(all.out.narrow(0, 1, 1), second.out));
  EXPECT_TRUE(same_bits(backward(d_out, qkv, all, both).narrow(0, 100, 100),
                        backward(d_out.narrow(0, 1, 1), qkv.narrow(0, 100, 100), second, single)));
}

TEST(CausalAttention, AnyThreadCountGivesTheSameBits) {
  SKIP_WITHOUT_KERNEL();
  const CausalShape s{1, 130, 6, 3, 32};
  const at::Tensor qkv = random_qkv(s, 5);
  const at::Tensor d_out = normal<bf16>({1, 130, 6, 32}, 6).transpose(1, 2);
  expect_same_bits_for_any_thread_count([&] { return forward(qkv, s).out; });
  const Result result = forward(qkv, s);
  expect_same_bits_for_any_thread_count([&] { return backward(d_out, qkv, result, s); });
}

TEST(CausalAttention, LargeScoresStayFinite) {
  SKIP_WITHOUT_KERNEL();
  const CausalShape s{1, 70, 1, 1, 16};
  const at::Tensor qkv = random_qkv(s, 7) * 100;
  const Result result = forward(qkv, s);
  EXPECT_TRUE(result.out.to(at::kFloat).isfinite().all().item<bool>());
  EXPECT_TRUE(result.logsumexp.isfinite().all().item<bool>());
  const at::Tensor d_out = normal<bf16>({1, 70, 1, 16}, 8).transpose(1, 2);
  EXPECT_TRUE(backward(d_out, qkv, result, s).to(at::kFloat).isfinite().all().item<bool>());
}

TEST(CausalAttention, NoNumberStaysNone) {
  SKIP_WITHOUT_KERNEL();
  const CausalShape s{1, 70, 1, 1, 16};
  const at::Tensor qkv = random_qkv(s, 9);
  qkv[66][3] = std::numeric_limits<float>::quiet_NaN();  // a query's
  const at::Tensor is_nan = forward(qkv, s).out.isnan().all(3).flatten();
  EXPECT_EQ(is_nan.nonzero().item<std::int64_t>(), 66);
}

TEST(CausalAttention, OtherShapesAreNotForIt) {
  EXPECT_FALSE(has_causal_attention({1, 8, 2, 2, 24}));
  EXPECT_FALSE(has_causal_attention({1, 8, 3, 2, 16}));
  EXPECT_FALSE(has_causal_attention({1, 1 << 20, 2, 2, 64}));
}

}  // namespace
}  // namespace finetune::kernels::test::attention_test
