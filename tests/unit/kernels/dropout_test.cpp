// SPDX-License-Identifier: Apache-2.0
#include "kernels/dropout.hpp"

#include "core/random.hpp"
#include "kernels/composed_packed.hpp"
#include "unit/kernels/tensors.hpp"

namespace finetune::kernels::test::dropout_test {
namespace {

constexpr DropoutKey some_key{0x123456789ABCDEFULL, 7};

template <class T>
at::Tensor dropped(const at::Tensor& x, const at::Tensor& tokens, double p,
                   const DropoutKey& key = some_key) {
  const at::Tensor out = at::empty_like(x);
  dropout(Dropout<T>{.x = elements<T>(x),
                     .tokens = elements<std::int64_t>(tokens),
                     .key = key,
                     .p = p,
                     .out = elements<T>(out)});
  return out;
}

at::Tensor numbers(std::int64_t first, std::int64_t count) {
  return at::arange(first, first + count, at::kLong);
}

/// As dropout.hpp says it.
bool is_kept(const DropoutKey& key, std::int64_t token, std::int64_t d, double p) {
  const std::int64_t e = d % dropout_tile;
  const auto word = static_cast<std::size_t>(e / dropout_lanes / 2);
  const auto low = static_cast<std::uint32_t>(token),
             high = static_cast<std::uint32_t>(token >> 32);
  const auto block =
      static_cast<std::uint32_t>(d / dropout_tile * dropout_lanes + e % dropout_lanes);
  const auto words = core::philox(
      {low, high, block, key.stream},
      {static_cast<std::uint32_t>(key.seed), static_cast<std::uint32_t>(key.seed >> 32) + 3});
  return (words[word] >> (e / dropout_lanes % 2 * 16) & 0xFFFF) >= std::lround(p * 65536);
}

TEST(Dropout, KeepsWhatPhiloxSays) {
  const std::int64_t first = (5LL << 32) + 9, dim = 700;  // two tiles and part of a third
  const at::Tensor out = dropped<float>(at::ones({3, dim}, at::kFloat), numbers(first, 3), 0.25);
  for (std::int64_t row = 0; row < 3; ++row) {
    for (std::int64_t d = 0; d < dim; ++d) {
      const float expected = is_kept(some_key, first + row, d, 0.25) ? 1.0f / 0.75f : 0.0f;
      ASSERT_EQ(out[row][d].item<float>(), expected) << row << " " << d;
    }
  }
}

template <class T>
class DropoutOf : public ::testing::Test {};
TYPED_TEST_SUITE(DropoutOf, ActivationTypes);

TYPED_TEST(DropoutOf, HasTheBitsOfItsComposition) {
  for (const std::int64_t dim : {1, 32, 250, 300}) {
    const at::Tensor x = normal<TypeParam>({5, dim}, 1);
    const at::Tensor tokens = numbers((1LL << 40) + 3, 5);
    for (const double p : {0.0, 0.1, 0.9}) {
      EXPECT_TRUE(
          same_bits(dropped<TypeParam>(x, tokens, p), composed::dropout(x, tokens, some_key, p)));
    }
  }
}

TYPED_TEST(DropoutOf, DropsOfAPartOfARowWhatItDropsOfTheWhole) {
  const at::Tensor x = normal<TypeParam>({3, 700}, 1), tokens = numbers((1LL << 40) + 3, 3);
  const at::Tensor whole = dropped<TypeParam>(x, tokens, 0.4);
  for (const auto& [first, dim] : {std::pair(1, 30), std::pair(250, 20), std::pair(256, 300),
                                   std::pair(289, 411), std::pair(600, 100)}) {
    const at::Tensor part = x.narrow(1, first, dim).contiguous();
    DropoutKey key = some_key;
    key.first_channel = first;
    const at::Tensor expected = whole.narrow(1, first, dim).contiguous();
    EXPECT_TRUE(same_bits(dropped<TypeParam>(part, tokens, 0.4, key), expected)) << first;
    EXPECT_TRUE(same_bits(composed::dropout(part, tokens, key, 0.4), expected)) << first;
  }
}

TYPED_TEST(DropoutOf, GivesTheSameBitsForAnyThreadCount) {
  const at::Tensor x = normal<TypeParam>({300, 288}, 1), tokens = numbers(0, 300);
  expect_same_bits_for_any_thread_count([&] { return dropped<TypeParam>(x, tokens, 0.1); });
}

TYPED_TEST(DropoutOf, WorksInPlace) {
  const at::Tensor x = normal<TypeParam>({3, 40}, 1), tokens = numbers(0, 3), copy = x.clone();
  dropout(Dropout<TypeParam>{.x = elements<TypeParam>(copy),
                             .tokens = elements<std::int64_t>(tokens),
                             .key = some_key,
                             .p = 0.5,
                             .out = elements<TypeParam>(copy)});
  EXPECT_TRUE(same_bits(copy, dropped<TypeParam>(x, tokens, 0.5)));
}

TEST(Dropout, OfATokenDoesNotDependOnItsNeighbours) {
  const at::Tensor x = normal<float>({6, 300}, 1), tokens = numbers(10, 6);
  const at::Tensor order = at::tensor({4, 1, 5}, at::kLong);
  const at::Tensor some =
      dropped<float>(x.index_select(0, order), tokens.index_select(0, order), 0.3);
  EXPECT_TRUE(same_bits(some, dropped<float>(x, tokens, 0.3).index_select(0, order)));
}

TEST(Dropout, KeepsItsShareAndTheMean) {
  const std::int64_t count = 2000 * 512;
  for (const double p : {0.05, 0.5}) {
    const at::Tensor out =
        dropped<float>(at::ones({2000, 512}, at::kFloat), numbers(0, 2000), p).to(at::kDouble);
    // Five standard deviations of a binomial share.
    const double spread = 5 * std::sqrt(p * (1 - p) / static_cast<double>(count));
    EXPECT_NEAR((out == 0).to(at::kDouble).mean().item<double>(), p, spread);
    EXPECT_NEAR(out.mean().item<double>(), 1.0, spread / (1 - p));
  }
}

TEST(Dropout, MasksOfOtherTokensSeedsAndStreamsAreOthers) {
  const at::Tensor x = at::ones({1, 512}, at::kFloat);
  const at::Tensor mask = dropped<float>(x, numbers(1, 1), 0.5);
  const auto shared = [&](const at::Tensor& other) {
    return (mask == other).to(at::kDouble).mean().item<double>();
  };
  // Half of the elements agree by chance, within five standard deviations.
  const double spread = 5 * 0.5 / std::sqrt(512.0);
  EXPECT_NEAR(shared(dropped<float>(x, numbers(2, 1), 0.5)), 0.5, spread);
  EXPECT_NEAR(shared(dropped<float>(x, numbers(1 + (1LL << 32), 1), 0.5)), 0.5, spread);
  EXPECT_NEAR(shared(dropped<float>(x, numbers(1, 1), 0.5, {some_key.seed, 8})), 0.5, spread);
  EXPECT_NEAR(shared(dropped<float>(x, numbers(1, 1), 0.5, {some_key.seed + 1, 7})), 0.5, spread);
  EXPECT_NEAR(shared(dropped<float>(x, numbers(1, 1), 0.5, {some_key.seed + (1ULL << 32), 7})), 0.5,
              spread);
}

TEST(Dropout, RefusesSizesAndSharesThatDoNotFit) {
  const at::Tensor x = at::ones({3, 8}, at::kFloat);
  EXPECT_ANY_THROW(dropped<float>(x, numbers(0, 5), 0.5));
  EXPECT_ANY_THROW(dropped<float>(x, numbers(0, 3), 1.0));
  EXPECT_ANY_THROW(dropped<float>(x, numbers(0, 3), -0.1));
  EXPECT_NO_THROW(dropped<float>(at::empty({0, 8}, at::kFloat), numbers(0, 0), 0.5));
}

}  // namespace
}  // namespace finetune::kernels::test::dropout_test
