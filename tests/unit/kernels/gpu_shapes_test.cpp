// SPDX-License-Identifier: Apache-2.0
// What is written for the threads and teams of a GPU, run on the host one after the other: the bits
// are those of the host's own kernels. Races between threads it cannot show.
#include "kernels/adamw.hpp"
#include "kernels/cross_entropy.hpp"
#include "kernels/detail/scratch.hpp"
#include "kernels/dropout.hpp"
#include "kernels/gptq.hpp"
#include "kernels/lion.hpp"
#include "kernels/nf4.hpp"
#include "kernels/rms_norm.hpp"
#include "kernels/rope.hpp"
#include "kernels/swiglu.hpp"
#include "unit/kernels/tensors.hpp"

namespace finetune::kernels {

// In the place of libtorch's for GPUs.
std::shared_ptr<void> gpu_memory(std::size_t bytes) {
  return std::shared_ptr<char[]>(new char[bytes]);
}

// All memory is the host's.
void before_kernel(const std::type_info&, void*, std::size_t) {}

namespace test::gpu_shapes_test {
namespace {

using Tensors = std::vector<at::Tensor>;

/// f(tensors, place) changes tensors: by the host's kernel and by the GPU's shape to the same bits.
template <class F>
void expect_the_same(const Tensors& before, const F& f) {
  const auto run = [&](const Place& place) {
    Tensors all;
    for (const at::Tensor& tensor : before)
      all.push_back(tensor.clone());
    f(all, place);
    return all;
  };
  const Tensors host = run({}), gpu = run(Place::gpu(nullptr));
  for (std::size_t i = 0; i < host.size(); ++i)
    EXPECT_TRUE(at::equal(host[i], gpu[i])) << "tensor " << i;
}

template <class T>
class GpuShape : public ::testing::Test {};
TYPED_TEST_SUITE(GpuShape, ActivationTypes);

TYPED_TEST(GpuShape, NormalisesAsTheHostDoes) {
  using T = TypeParam;
  const std::int64_t N = 67, D = 131;
  const at::Tensor wide = normal<T>({N, D}, 1), rows = at::empty({N}, at::kFloat);
  const at::Tensor weight = normal<T>({D}, 3);
  for (const bool has_residual : {false, true}) {
    const at::Tensor residual =
        has_residual ? normal<T>({N, D}, 2) : at::empty({0}, wide.options());
    expect_the_same({wide, residual, rows}, [&](Tensors& x, const Place& place) {
      rms_norm<T>({.x = elements<const T>(x[0]),
                   .residual = elements<const T>(x[1]),
                   .weight = elements<const T>(weight),
                   .epsilon = 1e-5f,
                   .h = elements<T>(x[1]),
                   .y = elements<T>(x[0]),
                   .rstd = elements<float>(x[2])},
                  place);
    });
  }
}

TYPED_TEST(GpuShape, TakesGradientsOfNormsAsTheHostDoes) {
  using T = TypeParam;
  const std::int64_t N = 67, D = 131;
  const at::Tensor h = normal<T>({N, D}, 1), weight = normal<T>({D}, 2);
  const at::Tensor rstd = normal<float>({N}, 3).abs();
  for (const bool is_trained : {false, true}) {
    for (const bool has_residual : {false, true}) {
      const at::Tensor dresidual = has_residual ? normal<T>({N, D}, 5) : at::Tensor();
      const at::Tensor dweight = is_trained ? normal<float>({D}, 6) : at::empty({0}, at::kFloat);
      expect_the_same({normal<T>({N, D}, 4), dweight}, [&](Tensors& x, const Place& place) {
        rms_norm_backward<T>({.dy = elements<const T>(x[0]),
                              .h = elements<const T>(h),
                              .weight = elements<const T>(weight),
                              .rstd = elements<const float>(rstd),
                              .dresidual = elements<const T>(dresidual),
                              .dx = elements<T>(x[0]),
                              .dweight = elements<float>(x[1])},
                             place);
      });
    }
  }
}

TYPED_TEST(GpuShape, ComputesLossesAsTheHostDoes) {
  using T = TypeParam;
  const std::int64_t N = 9, V = 257;
  at::Tensor logits = normal<T>({N, V}, 1) * 3;
  at::Tensor targets = integers(V, N, 2);
  targets[1] = ignored_target;
  targets[2] = logits[2].argmax();
  // The largest logit twice: only its first place is a hit.
  targets[3] = 200;
  logits[3][200] = logits[3][7] = 50;
  const at::Tensor scales = normal<float>({N}, 3);
  const Tensors before = {logits, at::empty({N}, at::kFloat), at::empty({N}, at::kBool)};
  expect_the_same(before, [&](Tensors& x, const Place& place) {
    cross_entropy<T>(elements<const T>(x[0]), elements<const std::int64_t>(targets),
                     elements<float>(x[1]), elements<bool>(x[2]), place);
    EXPECT_TRUE(x[2][2].item<bool>());
    EXPECT_FALSE(x[2][3].item<bool>());
  });
  expect_the_same(before, [&](Tensors& x, const Place& place) {
    cross_entropy_with_gradient<T>(elements<T>(x[0]), elements<const std::int64_t>(targets),
                                   elements<const float>(scales), elements<float>(x[1]),
                                   elements<bool>(x[2]), place);
  });
}

TYPED_TEST(GpuShape, ActivatesRotatesAndDropsAsTheHostDoes) {
  using T = TypeParam;
  const std::int64_t N = 7, F = 301;
  const at::Tensor gate_up = normal<T>({N, 2 * F}, 1), single = normal<T>({N, F}, 2);
  const at::Tensor tokens = integers(std::int64_t{1} << 40, N, 3);
  expect_the_same({single, gate_up}, [&](Tensors& x, const Place& place) {
    swiglu_backward<T>(elements<const T>(x[0]), elements<const T>(x[1]), F, elements<T>(x[1]),
                       place);
    swiglu<T>(elements<const T>(x[1]), F, elements<T>(x[0]), place);
    dropout<T>({.x = elements<const T>(x[0]),
                .tokens = elements<const std::int64_t>(tokens),
                .key = {std::uint64_t{1} << 35 | 5, 3, 40},
                .p = 0.3,
                .out = elements<T>(x[0])},
               place);
  });
  const std::int64_t L = 11, K = 6;
  const at::Tensor cos = normal<float>({L, K / 2}, 4), sin = normal<float>({L, K / 2}, 5);
  const at::Tensor positions = integers(L, N, 6);
  for (const Pairs pairs : {Pairs::halves, Pairs::neighbours}) {
    expect_the_same({normal<T>({N, (3 + 2 * 2) * K}, 7)}, [&](Tensors& x, const Place& place) {
      rope<T>({.qkv = elements<T>(x[0]),
               .cos = elements<const float>(cos),
               .sin = elements<const float>(sin),
               .positions = elements<const std::int64_t>(positions),
               .query_heads = 3,
               .key_heads = 2,
               .head_size = K,
               .rotation = Rotation::backward,
               .pairs = pairs},
              place);
    });
  }
}

TYPED_TEST(GpuShape, UnpacksAsTheHostDoes) {
  using T = TypeParam;
  const auto bytes = [](std::int64_t count, std::uint64_t seed) {
    return integers(256, count, seed).to(at::kByte);
  };
  const std::int64_t count = 64 * 300 + 5, blocks = 301;
  const at::Tensor codes = bytes((count + 1) / 2, 1), maxima = normal<float>({blocks}, 2).abs();
  const at::Tensor maxima_codes = bytes(blocks, 3), nested = normal<float>({2}, 4).abs();
  const at::Tensor offset = normal<float>({1}, 5);
  for (const bool is_nested : {false, true}) {
    expect_the_same({normal<T>({count}, 6)}, [&](Tensors& x, const Place& place) {
      Nf4<T> args{.codes = elements<const std::uint8_t>(codes), .out = elements<T>(x[0])};
      if (is_nested) {
        args.absmax_codes = elements<const std::uint8_t>(maxima_codes);
        args.nested_absmax = elements<const float>(nested);
        args.offset_at = elements<const float>(offset);
      } else {
        args.absmax = elements<const float>(maxima);
      }
      nf4_dequantize(args, place);
    });
  }
  const std::int64_t I = 24, O = 264, G = 3;
  const auto words = [&](std::int64_t n, std::uint64_t seed) {
    return bytes(4 * n, seed).view(at::kInt);
  };
  const at::Tensor qweight = words(I / 8 * O, 7), qzeros = words(G * O / 8, 8);
  const at::Tensor scales = normal<float>({G * O}, 9).to(at::kHalf);
  const at::Tensor groups = integers(G, I, 10).to(at::kInt);
  expect_the_same({normal<T>({I, O + 3}, 11)}, [&](Tensors& x, const Place& place) {
    gptq_dequantize<T>({.qweight = elements<const std::int32_t>(qweight),
                        .qzeros = elements<const std::int32_t>(qzeros),
                        .scales = elements<const f16>(scales),
                        .g_idx = elements<const std::int32_t>(groups),
                        .inputs = I,
                        .outputs = O,
                        .stored_zero_offset = 1,
                        .out = elements<T>(x[0]).data(),
                        .out_stride = O + 3},
                       place);
  });
}

TYPED_TEST(GpuShape, UpdatesAsTheHostDoes) {
  using T = TypeParam;
  const std::int64_t N = 1003;
  const at::Tensor gradient = normal<float>({N}, 4);
  const Tensors before = {normal<T>({N}, 1), normal<T>({N}, 2), normal<T>({N}, 3).abs(),
                          at::empty({N}, at::kHalf)};
  for (const bool is_stochastic : {false, true}) {
    std::optional<RoundingKey> rounding;
    if (is_stochastic) rounding = RoundingKey{std::uint64_t{3} << 40 | 1, 77};
    expect_the_same(before, [&](Tensors& x, const Place& place) {
      adamw<T, T>({.weight = elements<T>(x[0]),
                   .exp_avg = elements<T>(x[1]),
                   .exp_avg_sq = elements<T>(x[2]),
                   .gradient = elements<const float>(gradient),
                   .weight_bf16 = {},
                   .weight_f16 = elements<f16>(x[3]),
                   .lr = 1e-2,
                   .beta1 = 0.9,
                   .beta2 = 0.95,
                   .epsilon = 1e-8,
                   .weight_decay = 0.1,
                   .step = 3,
                   .rounding = rounding,
                   .index = (std::int64_t{1} << 33) + 37},
                  place);
      lion<T, T>({.weight = elements<T>(x[0]),
                  .exp_avg = elements<T>(x[1]),
                  .gradient = elements<const float>(gradient),
                  .lr = 1e-2,
                  .beta1 = 0.9,
                  .beta2 = 0.95,
                  .weight_decay = 0.1,
                  .rounding = rounding,
                  .index = 5},
                 place);
    });
  }
}

}  // namespace
}  // namespace test::gpu_shapes_test
}  // namespace finetune::kernels
