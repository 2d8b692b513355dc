// SPDX-License-Identifier: Apache-2.0
// Products and attention of a few tokens, beside the library's.
#include "kernels/few_rows.hpp"

#include "kernels/composed.hpp"
#include "unit/kernels/tensors.hpp"

namespace finetune::kernels::test::few_rows_test {
namespace {

template <class T>
class FewRowsOf : public ::testing::Test {};
TYPED_TEST_SUITE(FewRowsOf, ActivationTypes);

template <class T>
at::Tensor product_of(const at::Tensor& x, const at::Tensor& w) {
  at::Tensor y = at::empty({x.size(0), w.size(0)}, x.options());
  few_rows_product<T>(elements<T>(x), elements<T>(w), elements<T>(y), x.size(0), w.size(0),
                      x.size(1));
  return y;
}

TYPED_TEST(FewRowsOf, ProductIsTheLibrarys) {
  for (const std::int64_t m : {1, 2, 4, 7, 32}) {
    for (const std::int64_t k : {1, 33, 256}) {
      const at::Tensor x = normal<TypeParam>({m, k}, 1), w = normal<TypeParam>({21, k}, 2);
      const at::Tensor expected =
          at::mm(x.to(at::kDouble), w.to(at::kDouble).t()).to(x.scalar_type());
      expect_within(product_of<TypeParam>(x, w), expected,
                    std::max(tolerance<TypeParam>(), 1e-6 * std::sqrt(static_cast<double>(k))));
    }
  }
}

TYPED_TEST(FewRowsOf, ARowDoesNotDependOnTheOthers) {
  const at::Tensor x = normal<TypeParam>({9, 100}, 3), w = normal<TypeParam>({70, 100}, 4);
  const at::Tensor all = product_of<TypeParam>(x, w);
  for (std::int64_t row = 0; row < 9; ++row)
    EXPECT_TRUE(at::equal(product_of<TypeParam>(x.narrow(0, row, 1).contiguous(), w),
                          all.narrow(0, row, 1)));
}

TYPED_TEST(FewRowsOf, TokensAttendToTheirTexts) {
  constexpr std::int64_t heads = 6, key_heads = 2, size = 24;
  const std::int64_t lengths[] = {1, 17, 40}, firsts[] = {0, 5, 0};
  const at::Tensor q = normal<TypeParam>({3, (heads + 2 * key_heads) * size}, 5);
  std::vector<at::Tensor> kept;
  std::vector<typename TokenAttention<TypeParam>::Text> texts;
  for (std::size_t i = 0; i < 3; ++i) {
    kept.push_back(normal<TypeParam>({lengths[i] + 3, 2 * key_heads * size}, 6 + i));
    texts.push_back({elements<TypeParam>(kept.back()).data(), firsts[i], lengths[i]});
  }
  at::Tensor out = at::empty({3, heads * size}, q.options());
  attend_tokens<TypeParam>({.texts = texts,
                            .q = elements<TypeParam>(q).data(),
                            .q_stride = q.size(1),
                            .out = elements<TypeParam>(out).data(),
                            .heads = heads,
                            .key_heads = key_heads,
                            .head_size = size});
  for (std::int64_t i = 0; i < 3; ++i) {
    const auto at_i = static_cast<std::size_t>(i);
    const std::int64_t count = lengths[at_i] - firsts[at_i];
    const at::Tensor seen = kept[at_i].narrow(0, firsts[at_i], count).to(at::kDouble);
    const auto part = [&](std::int64_t first) {
      return seen.narrow(1, first * size, key_heads * size)
          .view({1, count, key_heads, size})
          .transpose(1, 2);
    };
    const at::Tensor query =
        q.narrow(0, i, 1).narrow(1, 0, heads * size).to(at::kDouble).view({1, heads, 1, size});
    const at::Tensor expected =
        composed::attention(query, part(0), part(key_heads), {}).out.reshape({heads * size});
    expect_within(out[i], expected.to(out.scalar_type()), tolerance<TypeParam>());
  }
}

}  // namespace
}  // namespace finetune::kernels::test::few_rows_test
