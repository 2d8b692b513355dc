// SPDX-License-Identifier: Apache-2.0
#include "kernels/product.hpp"

#include "kernels/processor.hpp"
#include "unit/kernels/tensors.hpp"

namespace finetune::kernels::test::product_test {
namespace {

template <class T>
constexpr at::ScalarType dtype_of() {
  return std::is_same_v<T, float>  ? at::kFloat
         : std::is_same_v<T, bf16> ? at::kBFloat16
                                   : at::kHalf;
}

template <class T, class Element = const T>
Matrix<Element> view(const at::Tensor& x) {
  return {static_cast<Element*>(x.data_ptr()), x.size(0), x.size(1), x.stride(0), x.stride(1)};
}

template <class T>
at::Tensor multiplied(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor c = at::full({a.size(0), b.size(1)}, 77, a.options());
  product<T>(view<T>(a), view<T>(b), view<T, T>(c), Into::fresh);
  return c;
}

struct Size {
  std::int64_t m, n, k;
};

class ProductOf : public ::testing::TestWithParam<Size> {
 protected:
  /// Every layout of both sides against fp64, rounded once.
  template <class T>
  void expect_rounded_once(double unit) {
    const auto [m, n, k] = GetParam();
    const at::Tensor a = normal<float>({m, k}, 1).to(dtype_of<T>());
    const at::Tensor b = normal<float>({k, n}, 2).to(dtype_of<T>());
    const at::Tensor expected = at::mm(a.to(at::kDouble), b.to(at::kDouble));
    const at::Tensor a_turned = a.t().contiguous().t(), b_turned = b.t().contiguous().t();
    const at::Tensor first = multiplied<T>(a, b);
    expect_close(first, expected, unit + 5e-4);
    EXPECT_TRUE(same_bits(multiplied<T>(a, b_turned), first));
    EXPECT_TRUE(same_bits(multiplied<T>(a_turned, b), first));
    EXPECT_TRUE(same_bits(multiplied<T>(a_turned, b_turned), first));
  }
};

TEST_P(ProductOf, IsSummedInFp32AndRoundedOnce) {
  expect_rounded_once<float>(0);
  expect_rounded_once<bf16>(1.0 / 256);
  expect_rounded_once<f16>(1.0 / 2048);
}

// One element; panels of 6 and 16 that are not full; blocks of 120 rows, 384 columns and 256 terms
// that are just begun; rows beyond the 480 whose sums wait.
INSTANTIATE_TEST_SUITE_P(Sizes, ProductOf,
                         testing::Values(Size{1, 1, 1}, Size{7, 17, 9}, Size{6, 16, 8},
                                         Size{121, 385, 257}, Size{481, 20, 11},
                                         Size{3, 800, 513}));

TEST(Product, OfNarrowFloatsIsTheRoundedProductOfTheirValues) {
  const at::Tensor a = normal<bf16>({50, 300}, 3), b = normal<bf16>({300, 40}, 4);
  EXPECT_TRUE(same_bits(multiplied<bf16>(a, b),
                        multiplied<float>(a.to(at::kFloat), b.to(at::kFloat)).to(at::kBFloat16)));
}

TEST(Product, AddsToWhatIsThereBeforeItRounds) {
  const at::Tensor a = normal<bf16>({20, 30}, 5), b = normal<bf16>({30, 33}, 6);
  const at::Tensor c = normal<bf16>({20, 33}, 7);
  const at::Tensor expected =
      (c.to(at::kFloat) + multiplied<float>(a.to(at::kFloat), b.to(at::kFloat))).to(at::kBFloat16);
  product<bf16>(view<bf16>(a), view<bf16>(b), view<bf16, bf16>(c), Into::sum);
  EXPECT_TRUE(same_bits(c, expected));
}

TEST(Product, WritesIntoAPartOfAMatrixAlone) {
  const at::Tensor whole = at::zeros({8, 40}, at::kBFloat16), part = whole.narrow(1, 10, 20);
  const at::Tensor a = normal<bf16>({8, 5}, 8), b = normal<bf16>({5, 20}, 9);
  product<bf16>(view<bf16>(a), view<bf16>(b), view<bf16, bf16>(part), Into::fresh);
  EXPECT_TRUE(same_bits(part.contiguous(), multiplied<bf16>(a, b)));
  EXPECT_EQ(whole.narrow(1, 0, 10).abs().sum().item<float>(), 0);
  EXPECT_EQ(whole.narrow(1, 30, 10).abs().sum().item<float>(), 0);
}

TEST(Product, WithoutTermsIsZero) {
  const at::Tensor a = at::empty({3, 0}, at::kBFloat16), b = at::empty({0, 4}, at::kBFloat16);
  EXPECT_EQ(multiplied<bf16>(a, b).abs().sum().item<float>(), 0);
}

TEST(Product, AnyThreadCountGivesTheSameBits) {
  const at::Tensor a = normal<bf16>({150, 300}, 10), b = normal<bf16>({300, 70}, 11);
  expect_same_bits_for_any_thread_count([&] { return multiplied<bf16>(a, b); });
}

TEST(Product, ABrokenElementSpoilsItsOwnRowAndColumnAlone) {
  at::Tensor a = normal<bf16>({9, 20}, 12);
  a[4][3] = std::numeric_limits<float>::infinity();
  const at::Tensor c = multiplied<bf16>(a, normal<bf16>({20, 18}, 13));
  const at::Tensor is_finite = c.isfinite().all(1);
  for (std::int64_t row = 0; row < 9; ++row)
    EXPECT_EQ(is_finite[row].item<bool>(), row != 4);
}

TEST(Processor, MultipliesFp32InAnyCase) {
  EXPECT_TRUE(multiplies(core::DType::f32));
  EXPECT_STRNE(instruction_set(), "");
}

}  // namespace
}  // namespace finetune::kernels::test::product_test
