// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "kernels/attention.hpp"
#include "kernels/composed.hpp"
#include "unit/kernels/tensors.hpp"

namespace finetune::kernels::test::widened_attention_test {
namespace {

/// Of one shape and element: views [B, H, L, K] on memory in which the heads of a token are
/// neighbours, and one element lies between tokens.
template <class T>
struct Widened {
  CausalShape s;
  at::Tensor q = heads(s.num_heads, s.length, 1), k = heads(s.num_kv_heads, s.keys(), 2);
  at::Tensor v = heads(s.num_kv_heads, s.keys(), 3), d_out = heads(s.num_heads, s.length, 4),
             out = at::zeros_like(q);
  at::Tensor logsumexp = at::zeros({s.num_samples, s.num_heads, s.length}, at::kFloat);
  at::Tensor d_q = at::zeros_like(q), d_k = at::zeros_like(k), d_v = at::zeros_like(v);

  static at::ScalarType dtype() {
    return std::is_same_v<T, float>  ? at::kFloat
           : std::is_same_v<T, bf16> ? at::kBFloat16
                                     : at::kHalf;
  }

  at::Tensor heads(std::int64_t num, std::int64_t length, std::uint64_t seed) const {
    return normal<float>({s.num_samples, length, num * s.head_size + 1}, seed)
        .to(dtype())
        .narrow(2, 0, num * s.head_size)
        .unflatten(2, {num, s.head_size})
        .transpose(1, 2);
  }

  template <class U>
  static Heads<U> view(const at::Tensor& x) {
    return {static_cast<U*>(x.data_ptr()), x.stride(0), x.stride(1), x.stride(2)};
  }

  void forward() {
    widened_attention<T>({.shape = s,
                          .q = view<const T>(q),
                          .k = view<const T>(k),
                          .v = view<const T>(v),
                          .out = view<T>(out),
                          .logsumexp = logsumexp.data_ptr<float>()});
  }
  void backward() {
    widened_attention_backward<T>({.shape = s,
                                   .q = view<const T>(q),
                                   .k = view<const T>(k),
                                   .v = view<const T>(v),
                                   .out = view<const T>(out),
                                   .d_out = view<const T>(d_out),
                                   .logsumexp = logsumexp.data_ptr<float>(),
                                   .d_q = view<T>(d_q),
                                   .d_k = view<T>(d_k),
                                   .d_v = view<T>(d_v)});
  }
};

/// What each query of the shape sees, as the composition takes it.
composed::Visible visible(const CausalShape& s) {
  if (!s.is_causal) return {};
  if (s.keys() == s.length && s.window == 0) return {.is_causal = true, .mask = {}};
  const at::Tensor all = at::ones({s.length, s.keys()}, at::kBool);
  const std::int64_t self = s.keys() - s.length;
  at::Tensor seen = all.tril(self);
  if (s.window > 0) seen.logical_and_(all.triu(self - s.window + 1));
  return {.is_causal = false,
          .mask = at::zeros({s.length, s.keys()}, at::kFloat)
                      .masked_fill_(seen.logical_not(), -std::numeric_limits<float>::infinity())};
}

/// Against the composition, which computes in fp32 too: each result is rounded once, and may be on
/// the other side of a tie.
template <class T>
void expect_composition(const CausalShape& s, double part) {
  Widened<T> own{s};
  ASSERT_TRUE(has_widened_attention(s));
  own.forward();
  const auto expected = composed::attention(own.q, own.k, own.v, visible(s));
  expect_within(own.out, expected.out, part);
  expect_within(own.logsumexp, expected.logsumexp, 1e-5);
  own.backward();
  const auto d = composed::attention_backward(own.d_out, own.q, own.k, own.v,
                                              {own.out, own.logsumexp}, visible(s));
  expect_within(own.d_q, d.q, std::max(part, 2e-5));
  expect_within(own.d_k, d.k, std::max(part, 2e-5));
  expect_within(own.d_v, d.v, std::max(part, 2e-5));
}

class WidenedAttentionOf : public ::testing::TestWithParam<CausalShape> {};

TEST_P(WidenedAttentionOf, IsThatOfTheComposition) {
  expect_composition<float>(GetParam(), 1e-5);
  expect_composition<bf16>(GetParam(), 1.0 / 128);
  expect_composition<f16>(GetParam(), 1.0 / 1024);
}

// One token; tiles of 48 that are nearly full, full, just begun; more tiles than are there at once;
// head sizes that fill no panel of 16; shared key heads; keys before the queries, and windows that
// end inside a tile, at one, and far behind; keys that all queries see, more and fewer than they.
INSTANTIATE_TEST_SUITE_P(
    Shapes, WidenedAttentionOf,
    testing::Values(
        CausalShape{1, 2, 1, 1, 1}, CausalShape{2, 47, 2, 2, 16}, CausalShape{1, 48, 4, 2, 24},
        CausalShape{2, 49, 4, 1, 64}, CausalShape{1, 150, 2, 2, 80}, CausalShape{1, 400, 3, 1, 20},
        CausalShape{1, 900, 1, 1, 8}, CausalShape{1, 50, 2, 1, 16, 120},
        CausalShape{2, 100, 2, 1, 16, 0, 7}, CausalShape{1, 60, 2, 1, 16, 130, 48},
        CausalShape{1, 500, 1, 1, 16, 0, 450}, CausalShape{1, 60, 2, 1, 16, 430, 0, false},
        CausalShape{2, 100, 2, 2, 24, 7, 0, false}, CausalShape{1, 48, 2, 1, 8, 96, 0, false}));

TEST(WidenedAttention, OneTokenSeesItself) {
  Widened<float> own{{1, 1, 2, 2, 8}};
  own.forward();
  expect_within(own.out, own.v, 1e-6);
  own.backward();
  expect_within(own.d_v, own.d_out, 1e-6);
  EXPECT_LE(own.d_q.abs().max().item<float>(), 1e-5f);
}

TEST(WidenedAttention, AHeadDependsOnItsOwnInputsAlone) {
  Widened<bf16> both{{2, 100, 4, 2, 32}}, second{{1, 100, 4, 2, 32}};
  second.q.copy_(both.q.narrow(0, 1, 1));
  second.k.copy_(both.k.narrow(0, 1, 1));
  second.v.copy_(both.v.narrow(0, 1, 1));
  second.d_out.copy_(both.d_out.narrow(0, 1, 1));
  for (Widened<bf16>* each : {&both, &second}) {
    each->forward();
    each->backward();
  }
  EXPECT_TRUE(same_bits(both.out.narrow(0, 1, 1), second.out));
  EXPECT_TRUE(same_bits(both.d_k.narrow(0, 1, 1), second.d_k));
}

TEST(WidenedAttention, AnyThreadCountGivesTheSameBits) {
  Widened<bf16> own{{1, 130, 6, 3, 32}};
  expect_same_bits_for_any_thread_count([&] {
    own.forward();
    return own.out.clone();
  });
  expect_same_bits_for_any_thread_count([&] {
    own.backward();
    return own.d_k.clone();
  });
}

TEST(WidenedAttention, LargeScoresStayFinite) {
  Widened<float> own{{1, 70, 1, 1, 16}};
  own.q.mul_(1000);
  own.forward();
  own.backward();
  for (const at::Tensor& x : {own.out, own.logsumexp, own.d_q, own.d_k, own.d_v})
    EXPECT_TRUE(x.isfinite().all().item<bool>());
}

TEST(WidenedAttention, AQueryThatIsNoNumberSpoilsItsOwnTokenAlone) {
  Widened<float> own{{1, 70, 1, 1, 16}};
  own.q[0][0][66][3] = std::numeric_limits<float>::quiet_NaN();
  own.forward();
  EXPECT_EQ(own.out.isnan().all(3).flatten().nonzero().item<std::int64_t>(), 66);
}

TEST(WidenedAttention, HeadsTooLongForItsMemoryAreNotForIt) {
  EXPECT_TRUE(has_widened_attention({1, 65536, 2, 2, 128}));
  EXPECT_FALSE(has_widened_attention({1, 131072, 2, 2, 128}));
  EXPECT_FALSE(has_widened_attention({1, 8, 3, 2, 16}));
}

}  // namespace
}  // namespace finetune::kernels::test::widened_attention_test
