// SPDX-License-Identifier: Apache-2.0
// Kernels that take 16 bytes at once on a GPU.
#include "kernels/rope.hpp"
#include "kernels/swiglu.hpp"
#include "unit/kernels/gpu_shapes.hpp"

namespace finetune::kernels::test::gpu_packs_test {
namespace {

template <class T>
class GpuPacks : public ::testing::Test {};
TYPED_TEST_SUITE(GpuPacks, ActivationTypes);

// Sizes and addresses at which a GPU takes 16 bytes at once, and addresses at which it cannot.
TYPED_TEST(GpuPacks, TakesPacksAsTheHostTakesElements) {
  using T = TypeParam;
  const std::int64_t N = 5, F = 48, K = 32, L = 11;
  const at::Tensor cos = normal<float>({L, K / 2}, 4), sin = normal<float>({L, K / 2}, 5);
  const at::Tensor positions = integers(L, N, 6);
  for (const std::int64_t skipped : {0, 1}) {
    const auto part = [&](const at::Tensor& x) { return x.narrow(0, skipped, x.size(0) - 1); };
    const Tensors before = {normal<T>({N * F + 1}, 1), normal<T>({N * 2 * F + 1}, 2),
                            normal<T>({N * (3 + 2 * 2) * K + 1}, 7)};
    expect_the_same(before, [&](Tensors& x, const Place& place) {
      const at::Tensor single = part(x[0]), gate_up = part(x[1]), qkv = part(x[2]);
      swiglu_backward<T>(elements<const T>(single), elements<const T>(gate_up), F,
                         elements<T>(gate_up), place);
      swiglu<T>(elements<const T>(gate_up), F, elements<T>(single), place);
      rope<T>({.qkv = elements<T>(qkv),
               .cos = elements<const float>(cos),
               .sin = elements<const float>(sin),
               .positions = elements<const std::int64_t>(positions),
               .query_heads = 3,
               .key_heads = 2,
               .head_size = K,
               .rotation = Rotation::forward,
               .pairs = Pairs::halves},
              place);
    });
  }
}

}  // namespace
}  // namespace finetune::kernels::test::gpu_packs_test
