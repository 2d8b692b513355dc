// SPDX-License-Identifier: Apache-2.0
#include "kernels/ema.hpp"

#include "kernels/composed_ema.hpp"
#include "unit/kernels/tensors.hpp"

namespace finetune::kernels::test::ema_test {
namespace {

constexpr std::int64_t count = 1003;

template <class T>
void expect_as_composed(at::ScalarType dtype) {
  const at::Tensor weight = normal<float>({count}, 1).to(dtype);
  const at::Tensor before = normal<float>({count}, 2);
  for (const double rate : {0.001, 0.25, 1.0}) {
    const at::Tensor ours = before.clone();
    at::Tensor theirs = before.clone();
    move_mean(elements<float>(ours), elements<const T>(weight), static_cast<float>(rate));
    composed::move_mean_(theirs, weight, rate);
    EXPECT_TRUE(at::equal(ours, theirs)) << rate;
  }
}

TEST(Ema, HasTheBitsOfItsComposition) {
  expect_as_composed<float>(at::kFloat);
  expect_as_composed<bf16>(at::kBFloat16);
}

TEST(Ema, MovesByItsRate) {
  const at::Tensor mean = at::tensor({1.0f, -2.0f, 0.0f, 8.0f});
  const at::Tensor weight = at::tensor({3.0f, 2.0f, -4.0f, 0.0f});
  move_mean(elements<float>(mean), elements<const float>(weight), 0.25f);
  EXPECT_TRUE(at::equal(mean, at::tensor({1.5f, -1.0f, -1.0f, 6.0f})));
  move_mean(elements<float>(mean), elements<const float>(weight), 1.0f);
  EXPECT_TRUE(at::equal(mean, weight));
}

TEST(Ema, CutAnywhereHasTheSameBits) {
  const at::Tensor weight = normal<float>({count}, 1), whole = normal<float>({count}, 2);
  const at::Tensor cut = whole.clone();
  move_mean(elements<float>(whole), elements<const float>(weight), 0.01f);
  for (const auto& [first, length] :
       {std::pair<std::int64_t, std::int64_t>{0, 7}, {7, 496}, {503, 500}}) {
    const at::Tensor mean = cut.narrow(0, first, length), piece = weight.narrow(0, first, length);
    move_mean(elements<float>(mean), elements<const float>(piece), 0.01f);
  }
  EXPECT_TRUE(at::equal(whole, cut));
}

}  // namespace
}  // namespace finetune::kernels::test::ema_test
