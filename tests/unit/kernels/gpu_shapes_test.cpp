// SPDX-License-Identifier: Apache-2.0
// What is written for the threads and teams of a GPU, run on the host one after the other: the bits
// are those of the host's own kernels. Races between threads it cannot show.
#include "unit/kernels/gpu_shapes.hpp"
#include "kernels/adamw.hpp"
#include "kernels/adamw8bit.hpp"
#include "kernels/cross_entropy.hpp"
#include "kernels/detail/scratch.hpp"
#include "kernels/dropout.hpp"
#include "kernels/embedding.hpp"
#include "kernels/exact_squares.hpp"
#include "kernels/fixed_point.hpp"
#include "kernels/gptq.hpp"
#include "kernels/lion.hpp"
#include "kernels/magnitudes.hpp"
#include "kernels/nf4.hpp"
#include "kernels/rms_norm.hpp"
#include "kernels/rope.hpp"
#include "kernels/swiglu.hpp"

namespace finetune::kernels {

// In the place of libtorch's for GPUs.
std::shared_ptr<void> gpu_memory(std::size_t bytes) {
  return std::shared_ptr<char[]>(new char[bytes]);
}

// All memory is the host's.
void before_kernel(const std::type_info&, void*, std::size_t) {}

namespace test::gpu_shapes_test {
namespace {

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

TYPED_TEST(GpuShape, AddsGradientsOfEmbeddingsAsTheHostDoes) {
  using T = TypeParam;
  const std::int64_t V = 11, N = 67, D = 131;
  const at::Tensor dy = normal<T>({N, D}, 1);
  at::Tensor ids = integers(V, N, 2);
  ids.narrow(0, 20, 30).fill_(10);
  const auto [sorted, order] = at::sort(ids, /*stable=*/true, 0, /*descending=*/false);
  const auto rising = elements<const std::int64_t>(sorted);
  const auto places = elements<const std::int64_t>(order);
  expect_the_same({normal<T>({V, D}, 3)}, [&](Tensors& x, const Place& place) {
    embedding_backward_sorted(elements<const T>(dy), rising, places, D, elements<T>(x[0]), place);
  });
}

TYPED_TEST(GpuShape, TakesNormsAndFactorsOfRowsAsTheHostDoes) {
  using T = TypeParam;
  const std::int64_t F = 37, D = 131, R = 5;
  const at::Tensor w = normal<T>({F, D}, 1), mixed = normal<T>({F, R}, 2), b = normal<T>({F, R}, 3);
  const at::Tensor low = normal<float>({F, R}, 4), magnitude = normal<T>({F}, 5);
  const at::Tensor d_factors = normal<float>({F}, 6), row = at::empty({F}, at::kFloat);
  expect_the_same({row, row, at::empty({F}, w.options())}, [&](Tensors& x, const Place& place) {
    adapted_row_squares<T>({.weight = elements<const T>(w),
                            .mixed = elements<const T>(mixed),
                            .b = elements<const T>(b),
                            .low = elements<const float>(low),
                            .scale = 0.7f,
                            .squares = elements<float>(x[0])},
                           place);
    x[0][3] = 0;
    row_factors<T>({.norms = elements<const float>(x[0]),
                    .magnitude = elements<const T>(magnitude),
                    .factors = elements<T>(x[2]),
                    .d_factors = elements<const float>(d_factors),
                    .d_magnitude = elements<float>(x[1])},
                   place);
  });
}

// Blocks with one run, with several, with padding, with none, with zeros and with a NaN.
TYPED_TEST(GpuShape, UpdatesMomentsOfEightBitsAsTheHostDoes) {
  using T = TypeParam;
  const std::int64_t N = 6 * moment_block + 37, blocks = 7;
  const at::Tensor gradient = normal<float>({N}, 4) * 1e-3;
  gradient.narrow(0, 3 * moment_block, moment_block).zero_();
  gradient[70] = std::nanf("");
  const std::vector<DecayRun> runs = {{0, 300, 0.1, std::int64_t{1} << 33},
                                      {300, 0, 0.5, 0},
                                      {300, 100, 0.0, 7},
                                      {410, 3 * moment_block, 0.1, 107},
                                      {N - 30, 20, 0.2, 5000}};
  const auto bytes = [&] { return at::zeros({N}, at::kByte); };
  const Tensors before = {normal<T>({N}, 1),
                          bytes(),
                          bytes(),
                          at::zeros({blocks}, at::kFloat),
                          at::zeros({blocks}, at::kFloat),
                          at::zeros({N}, at::kHalf)};
  for (const bool is_stochastic : {false, true}) {
    expect_the_same(before, [&](Tensors& x, const Place& place) {
      for (std::int64_t step = 1; step <= 3; ++step)
        adamw8bit<T>({.weight = elements<T>(x[0]),
                      .exp_avg = elements<std::uint8_t>(x[1]),
                      .exp_avg_sq = elements<std::uint8_t>(x[2]),
                      .exp_avg_scale = elements<float>(x[3]),
                      .exp_avg_sq_scale = elements<float>(x[4]),
                      .gradient = elements<const float>(gradient),
                      .weight_f16 = elements<f16>(x[5]),
                      .runs = runs,
                      .lr = 1e-2,
                      .beta1 = 0.9,
                      .beta2 = 0.95,
                      .epsilon = 1e-8,
                      .step = step,
                      .gradient_scale = 0.5f,
                      .rounding = is_stochastic ? std::optional(RoundingKey{9, 77}) : std::nullopt,
                      .tables = moment_tables()},
                     place);
      x[0][70] = x[5][70] = 0;  // NaN is equal to nothing
      EXPECT_GT(x[1].ne(0).sum().item<std::int64_t>(), 900);
    });
  }
}

// Teams cut elsewhere than blocks do, so bins differ where their sum does not.
TEST(GpuShapes, AddSquaresAsTheHostDoes) {
  const auto sum = [](const at::Tensor& values, const Place& place) {
    std::array<std::int64_t, SquareBins::num_values> bins{};
    for (const at::Tensor& part : values.split(40000))
      add_exact_squares(elements<const float>(part), bins, place);
    return sum_of(SquareBins::from(bins));
  };
  const Place gpu = Place::gpu(nullptr);
  for (const double size : {0x1p34, 1e3, 1.0, 1e-4, 1e-9, 1e-17}) {
    const at::Tensor values = normal<float>({70001}, 1) * size;
    const ExactSquares host = sum(values, {});
    EXPECT_EQ(sum(values, gpu).limbs, host.limbs) << size;
    EXPECT_EQ(host.limbs == ExactSquares().limbs, size == 1e-17);
    EXPECT_TRUE(sum(values, gpu).in_range);
  }
  for (const float bad : {0x1p38f, -INFINITY, std::nanf("")}) {
    at::Tensor values = at::ones({70001}, at::kFloat);
    values[70000] = bad;
    EXPECT_FALSE(sum(values, gpu).in_range) << bad;
  }
}

TEST(GpuShapes, CountInFixedPointAsTheHostDoes) {
  const std::int64_t N = 9001;
  const FixedPoint format{.scale_bits = 40, .limit = 2048.0f};
  for (const auto& [first, value] : {std::pair<std::int64_t, float>{-1, 0.0f},
                                     {0, -2048.0f},
                                     {4097, INFINITY},
                                     {9000, std::nanf("")}}) {
    at::Tensor wide = normal<float>({N}, 1) * 0x1p-30;
    wide.narrow(0, 0, 100).mul_(0x1p33);
    if (first >= 0) {
      wide[N - 1] = 4096.0f;
      wide[first] = value;
    }
    const at::Tensor narrow = wide.to(at::kBFloat16), half = wide.to(at::kHalf);
    expect_the_same(
        {at::zeros({N}, at::kLong), at::empty({N}, at::kFloat),
         at::full({3}, FirstOutOfRange::none, at::kLong)},
        [&, first = first, value = value](Tensors& x, const Place& place) {
          const auto sum = elements<std::int64_t>(x[0]);
          const auto found = elements<std::int64_t>(x[2]);
          to_fixed(elements<const float>(wide), format, sum, found.first<1>(), place);
          add_fixed(elements<const bf16>(narrow), format, sum, found.subspan<1, 1>(), place);
          add_fixed(elements<const f16>(half), format, sum, found.subspan<2, 1>(), place);
          from_fixed(sum, 40, elements<float>(x[1]), place);
          for (const std::int64_t packed : found) {
            const auto bad = FirstOutOfRange::from(packed);
            ASSERT_EQ(bad.has_value(), first >= 0);
            if (!bad) continue;
            EXPECT_EQ(bad->element, first);
            EXPECT_TRUE(bad->value == value || std::isnan(value));
          }
        });
  }
}

}  // namespace
}  // namespace test::gpu_shapes_test
}  // namespace finetune::kernels
