// SPDX-License-Identifier: Apache-2.0
#include "kernels/rope.hpp"

#include "kernels/composed.hpp"
#include "unit/kernels/tensors.hpp"

namespace finetune::kernels::test::rope_test {
namespace {

constexpr std::int64_t head_size = 24, query_heads = 3, key_heads = 1, length = 11;
constexpr std::int64_t row_size = (query_heads + 2 * key_heads) * head_size;

struct Tables {
  at::Tensor cos, sin;

  Tables() {
    const at::Tensor angles = normal<float>({length, head_size / 2}, 9);
    cos = angles.cos();
    sin = angles.sin();
  }
};

template <class T>
at::Tensor rotated(const at::Tensor& qkv, const Tables& tables, const at::Tensor& positions,
                   Rotation rotation) {
  at::Tensor result = qkv.clone();
  rope(Rope<T>{.qkv = elements<T>(result),
               .cos = elements<float>(tables.cos),
               .sin = elements<float>(tables.sin),
               .positions = elements<std::int64_t>(positions),
               .query_heads = query_heads,
               .key_heads = key_heads,
               .head_size = head_size,
               .rotation = rotation});
  return result;
}

template <class T>
class RopeOf : public ::testing::Test {};
TYPED_TEST_SUITE(RopeOf, ActivationTypes);

TYPED_TEST(RopeOf, MayTurnAPartOfAHeadsChannels) {
  constexpr std::int64_t turned = 10;
  const at::Tensor angles = normal<float>({length, turned / 2}, 9);
  const at::Tensor cos = angles.cos(), sin = angles.sin(), positions = integers(length, 7, 2);
  const at::Tensor qkv = normal<TypeParam>({7, row_size}, 1);
  for (const Pairs pairs : {Pairs::halves, Pairs::neighbours}) {
    at::Tensor expected = qkv.clone(), actual = qkv.clone();
    composed::rope_(expected, cos, sin, positions, {query_heads, key_heads, head_size, pairs},
                    Rotation::forward);
    rope(Rope<TypeParam>{.qkv = elements<TypeParam>(actual),
                         .cos = elements<float>(cos),
                         .sin = elements<float>(sin),
                         .positions = elements<std::int64_t>(positions),
                         .query_heads = query_heads,
                         .key_heads = key_heads,
                         .head_size = head_size,
                         .rotary_size = turned,
                         .pairs = pairs});
    expect_within(actual, expected, tolerance<TypeParam>());
    const auto rest = [&](const at::Tensor& x) {
      return x.view({7, query_heads + 2 * key_heads, head_size}).narrow(2, turned, 14);
    };
    EXPECT_TRUE(at::equal(rest(actual), rest(qkv)));
    EXPECT_FALSE(at::equal(actual, qkv));
  }
}

TYPED_TEST(RopeOf, EqualsItsComposition) {
  const Tables tables;
  const at::Tensor qkv = normal<TypeParam>({7, row_size}, 1), positions = integers(length, 7, 2);
  for (const Rotation rotation : {Rotation::forward, Rotation::backward}) {
    at::Tensor expected = qkv.clone();
    composed::rope_(expected, tables.cos, tables.sin, positions,
                    {query_heads, key_heads, head_size}, rotation);
    const at::Tensor actual = rotated<TypeParam>(qkv, tables, positions, rotation);
    expect_within(actual, expected, tolerance<TypeParam>());
  }
}

TYPED_TEST(RopeOf, LeavesTheValuesAlone) {
  const at::Tensor qkv = normal<TypeParam>({7, row_size}, 1);
  const at::Tensor actual =
      rotated<TypeParam>(qkv, Tables(), integers(length, 7, 2), Rotation::forward);
  const std::int64_t start = (query_heads + key_heads) * head_size;
  EXPECT_TRUE(at::equal(actual.narrow(1, start, head_size), qkv.narrow(1, start, head_size)));
  EXPECT_FALSE(at::equal(actual.narrow(1, 0, start), qkv.narrow(1, 0, start)));
}

TYPED_TEST(RopeOf, GivesTheSameBitsForAnyThreadCount) {
  const Tables tables;
  const at::Tensor qkv = normal<TypeParam>({400, row_size}, 1);
  const at::Tensor positions = integers(length, 400, 2);
  expect_same_bits_for_any_thread_count(
      [&] { return rotated<TypeParam>(qkv, tables, positions, Rotation::forward); });
}

TEST(Rope, BackwardUndoesForward) {
  const Tables tables;
  const at::Tensor qkv = normal<float>({7, row_size}, 1), positions = integers(length, 7, 2);
  const at::Tensor there = rotated<float>(qkv, tables, positions, Rotation::forward);
  const at::Tensor back = rotated<float>(there, tables, positions, Rotation::backward);
  expect_within(back, qkv, 1e-6);
}

TEST(Rope, RefusesAPositionBehindTheTables) {
  const at::Tensor qkv = normal<float>({1, row_size}, 1);
  const at::Tensor behind = at::full({1}, length, at::kLong), before = at::full({1}, -1, at::kLong);
  EXPECT_ANY_THROW(rotated<float>(qkv, Tables(), behind, Rotation::forward));
  EXPECT_ANY_THROW(rotated<float>(qkv, Tables(), before, Rotation::forward));
}

}  // namespace
}  // namespace finetune::kernels::test::rope_test
