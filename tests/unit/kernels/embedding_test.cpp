// SPDX-License-Identifier: Apache-2.0
#include "kernels/embedding.hpp"

#include "kernels/composed.hpp"
#include "unit/kernels/tensors.hpp"

namespace finetune::kernels::test::embedding_test {
namespace {

constexpr std::int64_t vocabulary = 13, dim = 100;

template <class T, class Gradient>
at::Tensor gradient_of(const at::Tensor& dy, const at::Tensor& ids, const at::Tensor& before) {
  at::Tensor dweight = before.clone();
  embedding_backward<T, Gradient>(elements<T>(dy), elements<std::int64_t>(ids), dim,
                                  elements<Gradient>(dweight));
  return dweight;
}

template <class T>
class Embedding : public ::testing::Test {};
TYPED_TEST_SUITE(Embedding, ActivationTypes);

TYPED_TEST(Embedding, GathersRows) {
  const at::Tensor weight = normal<TypeParam>({vocabulary, dim}, 1);
  const at::Tensor ids = integers(vocabulary, 7, 2), y = at::empty({7, dim}, weight.options());
  embedding<TypeParam>(elements<TypeParam>(weight), elements<std::int64_t>(ids), dim,
                       elements<TypeParam>(y));
  EXPECT_TRUE(same_bits(y, composed::embedding(weight, ids)));
}

TYPED_TEST(Embedding, AddsGradientsOfRepeatedIdsInOrder) {
  const at::Tensor dy = normal<TypeParam>({50, dim}, 1), ids = integers(vocabulary, 50, 2);
  const at::Tensor before = normal<float>({vocabulary, dim}, 3);
  at::Tensor expected = before.clone();
  for (std::int64_t n = 0; n < 50; ++n) {
    expected[ids[n].item<std::int64_t>()] += dy[n].to(at::kFloat);
  }
  EXPECT_TRUE(same_bits(gradient_of<TypeParam, float>(dy, ids, before), expected));
}

TYPED_TEST(Embedding, HasTheGradientOfItsComposition) {
  const at::Tensor dy = normal<TypeParam>({50, dim}, 1), ids = integers(vocabulary, 50, 2);
  at::Tensor expected = normal<bf16>({vocabulary, dim}, 3);
  const at::Tensor actual = gradient_of<TypeParam, bf16>(dy, ids, expected);
  composed::embedding_backward_(expected, dy, ids);
  expect_within(actual, expected, tolerance<bf16>());
}

TEST(EmbeddingGradient, KeepsManySmallAdditionsToABf16Row) {
  // Added one by one in bf16, 256 + 1 stays 256.
  const at::Tensor dy = at::ones({1000, dim}, at::kBFloat16), ids = at::zeros({1000}, at::kLong);
  const at::Tensor before = at::zeros({vocabulary, dim}, at::kBFloat16);
  const at::Tensor after = gradient_of<bf16, bf16>(dy, ids, before);
  EXPECT_EQ(after[0][0].item<float>(), 1000.0f);
  EXPECT_EQ(after[1].count_nonzero().item<std::int64_t>(), 0);
}

TYPED_TEST(Embedding, GivesTheSameBitsForAnyThreadCount) {
  const at::Tensor dy = normal<TypeParam>({500, dim}, 1), ids = integers(vocabulary, 500, 2);
  const at::Tensor before = at::zeros({vocabulary, dim}, at::kFloat);
  expect_same_bits_for_any_thread_count(
      [&] { return gradient_of<TypeParam, float>(dy, ids, before); });
}

TEST(EmbeddingIds, MustLieInTheVocabulary) {
  const at::Tensor weight = normal<float>({vocabulary, dim}, 1), row = at::empty({1, dim});
  for (const std::int64_t id : {std::int64_t{-1}, vocabulary}) {
    const at::Tensor ids = at::full({1}, id, at::kLong);
    EXPECT_ANY_THROW(embedding<float>(elements<float>(weight), elements<std::int64_t>(ids), dim,
                                      elements<float>(row)));
    EXPECT_ANY_THROW((gradient_of<float, float>(row, ids, weight)));
  }
}

}  // namespace
}  // namespace finetune::kernels::test::embedding_test
