// SPDX-License-Identifier: Apache-2.0
#include "kernels/expert_copies.hpp"

#include "core/error.hpp"
#include "unit/kernels/tensors.hpp"

namespace finetune::kernels::test::expert_copies_test {
namespace {

template <class T>
class ExpertCopies : public ::testing::Test {};
TYPED_TEST_SUITE(ExpertCopies, ActivationTypes);

/// As they multiply a tensor of type T.
template <class T>
at::Tensor factors(const at::Tensor& weights) {
  return weights.to(scalar_type<T>()).unsqueeze(1);
}

TYPED_TEST(ExpertCopies, OfRowsAreThoseRowsTimesTheirWeights) {
  for (const std::int64_t dim : {1, 33, 128}) {
    const at::Tensor x = normal<TypeParam>({5, dim}, 1), rows = integers(5, 700, 2);
    const at::Tensor weights = normal<float>({700}, 3), all_weights = normal<float>({5}, 4);
    at::Tensor copies = at::empty({700, dim}, x.options()), scaled = at::empty_like(copies);
    at::Tensor all = at::empty_like(x);
    copy_rows<TypeParam>(elements<TypeParam>(x), dim, elements<std::int64_t>(rows), {},
                         elements<TypeParam>(copies));
    EXPECT_TRUE(same_bits(copies, x.index_select(0, rows)));
    copy_rows<TypeParam>(elements<TypeParam>(x), dim, elements<std::int64_t>(rows),
                         elements<float>(weights), elements<TypeParam>(scaled));
    EXPECT_TRUE(same_bits(scaled, copies * factors<TypeParam>(weights)));
    copy_rows<TypeParam>(elements<TypeParam>(x), dim, {}, elements<float>(all_weights),
                         elements<TypeParam>(all));
    EXPECT_TRUE(same_bits(all, x * factors<TypeParam>(all_weights)));
  }
}

TYPED_TEST(ExpertCopies, AreAddedByTokenWithTheirWeights) {
  for (const std::int64_t top_k : {1, 2, 5}) {
    for (const std::int64_t dim : {1, 65, 200}) {
      const std::int64_t tokens = 37, count = tokens * top_k;
      const at::Tensor copies = normal<TypeParam>({count, dim}, 1);
      const at::Tensor weights = normal<float>({count}, 2);
      const at::Tensor places = integers(1 << 30, count, 3).argsort();
      at::Tensor y = at::empty({tokens, dim}, copies.options()), plain = at::empty_like(y);
      add_copies<TypeParam>(elements<TypeParam>(copies), dim, elements<std::int64_t>(places),
                            elements<float>(weights), elements<TypeParam>(y));
      add_copies<TypeParam>(elements<TypeParam>(copies), dim, elements<std::int64_t>(places), {},
                            elements<TypeParam>(plain));
      const at::Tensor of_token = copies.index_select(0, places).to(at::kDouble);
      const auto sums = [&](const at::Tensor& terms) {
        return terms.view({tokens, top_k, dim}).sum(1).to(copies.scalar_type());
      };
      expect_within(plain, sums(of_token), tolerance<TypeParam>());
      expect_within(y, sums(of_token * factors<TypeParam>(weights).to(at::kDouble)),
                    tolerance<TypeParam>());
    }
  }
}

TYPED_TEST(ExpertCopies, HaveDotProductsOfWhatTheyWereBeforeTheirWeights) {
  for (const std::int64_t features : {1, 70, 256}) {
    const at::Tensor a = normal<TypeParam>({19, features}, 1),
                     b = normal<TypeParam>({19, features}, 2);
    const at::Tensor weights = normal<float>({19}, 3);
    at::Tensor scaled = a.clone(), dots = at::empty({19}, at::kFloat);
    dot_and_scale_rows<TypeParam>(elements<TypeParam>(scaled), elements<TypeParam>(b),
                                  elements<float>(weights), elements<float>(dots));
    expect_within(dots, (a.to(at::kDouble) * b.to(at::kDouble)).sum(1), 1e-6);
    EXPECT_TRUE(same_bits(scaled, a * factors<TypeParam>(weights)));
  }
}

TYPED_TEST(ExpertCopies, DoNotDependOnTheNumberOfThreads) {
  const at::Tensor copies = normal<TypeParam>({4000, 100}, 1), weights = normal<float>({4000}, 2);
  const at::Tensor places = integers(1 << 30, 4000, 3).argsort();
  const auto results = with_thread_counts([&] {
    at::Tensor y = at::empty({1000, 100}, copies.options());
    add_copies<TypeParam>(elements<TypeParam>(copies), 100, elements<std::int64_t>(places),
                          elements<float>(weights), elements<TypeParam>(y));
    return y;
  });
  EXPECT_TRUE(same_bits(results[0], results[1]));
  EXPECT_TRUE(same_bits(results[0], results[2]));
}

TEST(ExpertCopiesOf, OtherSizesAreRefused) {
  std::vector<float> x(6), out(4), weights(3), dots(2);
  const std::vector<std::int64_t> rows{0, 1, 2};
  EXPECT_THROW(copy_rows<float>(x, 2, rows, {}, out), core::Error);
  EXPECT_THROW(copy_rows<float>(x, 2, {}, {}, out), core::Error);
  EXPECT_THROW(add_copies<float>(x, 2, rows, {}, out), core::Error);
  EXPECT_THROW(dot_and_scale_rows<float>(x, std::span<const float>(x), weights, dots), core::Error);
}

}  // namespace
}  // namespace finetune::kernels::test::expert_copies_test
