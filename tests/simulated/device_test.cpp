// SPDX-License-Identifier: Apache-2.0
// The simulated device finds what it is for: defects that only a GPU would show, planted here.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "kernels/composed.hpp"
#include "model/attention_sinks.hpp"
#include "model/detail/fp8_grouped_products.hpp"
#include "model/device.hpp"
#include "model/fp8_products.hpp"
#include "model/gpu_attention.hpp"
#include "model/upload.hpp"
#include "simulated/device/arena.hpp"
#include "simulated/device/counters.hpp"
#include "simulated/simulated_job.hpp"

namespace finetune::tests::simulated_device {
namespace {

at::Device gpu() {
  return model::compute_device(0);
}

Asked asked() {
  const std::string path = (empty_folder("simulated/counters") / "report").string();
  simulated::Counters::here().write(path);
  return read_report(path);
}

/// How often the host waits while `f` runs.
template <typename F>
std::int64_t waits_in(const F& f) {
  const std::int64_t before = asked().num_syncs;
  f();
  return asked().num_syncs - before;
}

TEST(SimulatedDevice, ComputesAsTheCpu) {
  const at::Tensor a = at::arange(12, at::kFloat).view({3, 4}), b = at::ones({4, 2});
  const at::Tensor there = at::mm(a.to(gpu()), b.to(gpu()));
  EXPECT_TRUE(there.device() == gpu());
  EXPECT_TRUE(there.cpu().equal(at::mm(a, b)));
  EXPECT_TRUE(at::cat({there, there}, 0).narrow(0, 3, 3).cpu().equal(at::mm(a, b)));
}

TEST(SimulatedDevice, EndsWhoeverReadsItsMemoryOnTheHost) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const at::Tensor there = at::ones({4}).to(gpu());
  EXPECT_DEATH(
      {
        const volatile float* values = there.data_ptr<float>();
        std::fprintf(stderr, "read %f\n", static_cast<double>(values[0]));
      },
      "");
}

TEST(SimulatedDevice, RefusesTensorsOfHostAndDeviceTogether) {
  const at::Tensor there = at::ones({4}).to(gpu());
  EXPECT_THROW(there.add(at::ones({4})), c10::Error);
  EXPECT_NO_THROW(there.add(at::scalar_tensor(2)));
}

TEST(SimulatedDevice, HandsOutMemoryThatHoldsNoNumbers) {
  EXPECT_TRUE(
      at::empty({5}, at::TensorOptions(at::kFloat).device(gpu())).cpu().isnan().all().item<bool>());
}

TEST(SimulatedDevice, CountsWaitsOfTheHost) {
  const at::Tensor there = at::ones({100'000}).to(gpu());
  EXPECT_EQ(waits_in([&] { static_cast<void>(there.sum()); }), 0);
  EXPECT_EQ(waits_in([&] { static_cast<void>(there.sum().item<float>()); }), 1);
  EXPECT_EQ(waits_in([&] { static_cast<void>(there.nonzero()); }), 1);
  EXPECT_EQ(waits_in([&] { static_cast<void>(there.cpu()); }), 1);
  EXPECT_EQ(waits_in([&] { static_cast<void>(at::ones({100'000}).to(gpu())); }), 1);
  // Pageable memory this large is read while the host waits, whatever was asked for.
  EXPECT_EQ(waits_in([&] { static_cast<void>(at::ones({100'000}).to(gpu(), at::kFloat, true)); }),
            1);
  EXPECT_EQ(waits_in([&] { static_cast<void>(model::upload(at::ones({100'000}), gpu())); }), 0);
}

TEST(SimulatedDevice, UsesMemoryAgainAndKnowsItsPeak) {
  const simulated::Arena& arena = simulated::Arena::here();
  const std::int64_t before = arena.bytes();
  const void* address = nullptr;
  {
    const at::Tensor there = at::empty({1000}, at::TensorOptions(at::kFloat).device(gpu()));
    address = there.const_data_ptr();
    EXPECT_EQ(arena.bytes() - before, 4096);
  }
  EXPECT_EQ(arena.bytes(), before);
  EXPECT_GE(arena.peak_bytes(), before + 4096);
  EXPECT_EQ(at::empty({1000}, at::TensorOptions(at::kFloat).device(gpu())).const_data_ptr(),
            address);
}

/// Samples of 5, 1 and 7 tokens, and padding, in two rows of 8.
model::Sequence sequence() {
  model::Sequence sequence;
  sequence.batch = 2;
  sequence.length = 8;
  sequence.stretches = {{0, 5}, {5, 1}, {6, 2, true}, {8, 7}, {15, 1, true}};
  return sequence;
}

struct AttentionCase {
  std::int64_t num_kv_heads = 4;
  std::int64_t window = 0;
  at::ScalarType dtype = at::kFloat;
};

/// Numbers in [-1, 1] that do not repeat.
at::Tensor waves(std::int64_t rows, std::int64_t columns, double step) {
  return at::arange(rows * columns, at::kFloat).mul(step).sin().view({rows, columns});
}

class OneLaunch : public testing::TestWithParam<AttentionCase> {};

/// Piece by piece on the CPU, and in one launch on the device: the same, for tokens that are not
/// padding.
TEST_P(OneLaunch, AttendsAsTheCpuDoes) {
  const AttentionCase& c = GetParam();
  const model::AttentionShape shape{
      .num_heads = 4, .num_kv_heads = c.num_kv_heads, .head_size = 8, .window = c.window};
  const at::Tensor qkv = waves(16, (4 + 2 * c.num_kv_heads) * 8, 1.7).to(c.dtype);
  at::Tensor d_out = waves(16, 32, 2.3).to(c.dtype);
  for (const std::int64_t padding : {6, 7, 15})
    d_out[padding].zero_();
  const auto run = [&](at::Device device) {
    const at::Tensor there = qkv.to(device);
    const model::Sequence pass = sequence();
    const auto attended = model::attend_pass(there, shape, pass, {}, model::Path::kernels);
    const at::Tensor d = model::attend_pass_backward(d_out.to(device), there, shape, pass, attended,
                                                     {}, model::Path::kernels);
    return std::pair(attended.out.cpu().to(at::kFloat), d.cpu().to(at::kFloat));
  };
  const auto [out, d] = run(at::kCPU);
  const auto [out_there, d_there] = run(gpu());
  const at::Tensor real = at::tensor({0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 13, 14}, at::kLong);
  const double tolerance = c.dtype == at::kFloat ? 1e-5 : 3e-2;
  const auto differ = [&](const at::Tensor& a, const at::Tensor& b) {
    return (a.index_select(0, real) - b.index_select(0, real)).abs().max().item<double>();
  };
  EXPECT_LT(differ(out, out_there), tolerance);
  EXPECT_LT(differ(d, d_there), tolerance);
  EXPECT_GT(d.abs().max().item<double>(), 0.1);
}

INSTANTIATE_TEST_SUITE_P(Shapes, OneLaunch,
                         testing::Values(AttentionCase{}, AttentionCase{.num_kv_heads = 2},
                                         AttentionCase{.window = 3},
                                         AttentionCase{.dtype = at::kBFloat16},
                                         AttentionCase{2, 3, at::kBFloat16},
                                         AttentionCase{.num_kv_heads = 1, .dtype = at::kHalf}));

class Fp8OnADevice : public testing::TestWithParam<model::Fp8Recipe> {};

/// The device has them by its scaled product, the CPU by what the operands stand for.
TEST_P(Fp8OnADevice, MultipliesAsTheCpuDoes) {
  const at::Tensor x = waves(40, 512, 0.7).to(at::kBFloat16);
  const at::Tensor w = waves(1024, 512, 1.3).to(at::kBFloat16);
  const at::Tensor dy = waves(40, 1024, 0.9).to(at::kBFloat16) * 1e-5;
  const auto path = model::Path::kernels;
  const auto of = [](const at::Tensor& matrix) {
    return model::quantise_matrix(matrix, GetParam());
  };
  const auto expect_near = [](const at::Tensor& there, const at::Tensor& here) {
    EXPECT_TRUE(there.device() == gpu());
    EXPECT_TRUE(at::allclose(there.cpu().to(at::kFloat), here.to(at::kFloat), 0x1p-7,
                             1e-4 * here.abs().max().item<double>()));
  };
  const at::Tensor x_there = x.to(gpu()), w_there = w.to(gpu()), dy_there = dy.to(gpu());
  const std::int64_t before = asked().launches["aten::_scaled_mm"];
  at::Tensor y, dx;
  EXPECT_EQ(waits_in([&] {
              y = model::fp8_product(x_there, of(w_there), GetParam(), path);
              dx = model::fp8_product_backward(dy_there, of(w_there), GetParam(), path);
            }),
            0);
  EXPECT_EQ(asked().launches["aten::_scaled_mm"] - before, 2);
  expect_near(y, model::fp8_product(x, of(w), GetParam(), path));
  expect_near(dx, model::fp8_product_backward(dy, of(w), GetParam(), path));
}

/// Nobody waits to know how many rows each expert has. What the kernel of 8 bits does not take is
/// multiplied in bf16, as what it stands for.
TEST_P(Fp8OnADevice, MultipliesAllExpertsInOneLaunch) {
  constexpr std::int64_t num = 3, out = 1024, in = 512;
  const at::Tensor x = waves(40, in, 0.7).to(at::kBFloat16);
  const at::Tensor dy = waves(40, out, 0.9).to(at::kBFloat16) * 1e-5;
  const at::Tensor ends = at::tensor({11, 11, 40}, at::kInt);
  std::vector<model::Quantised> experts;
  std::vector<at::Tensor> values, scales;
  for (std::int64_t i = 0; i < num; ++i) {
    const at::Tensor matrix = waves(out, in, 1.3 + static_cast<double>(i));
    experts.push_back(model::quantise_matrix(
        (matrix * at::exp(waves(out, 1, 2) * 2)).to(at::kBFloat16), GetParam()));
    // Something lies between neighbours, as down lies behind gate and up.
    values.push_back(
        at::cat({experts.back().values.view(at::kByte).flatten(), at::zeros({32}, at::kByte)}));
    scales.push_back(experts.back().scales);
  }
  const model::Quantised all{at::stack(values)
                                 .to(gpu())
                                 .view(at::kFloat8_e4m3fn)
                                 .as_strided({num, out, in}, {out * in + 32, in, 1}),
                             at::stack(scales).to(gpu())};
  const at::Tensor x_there = x.to(gpu()), dy_there = dy.to(gpu()), ends_there = ends.to(gpu());
  const Asked before = asked();
  const auto launches = [&](const char* name) {
    Asked now = asked(), then = before;
    return now.launches[name] - then.launches[name];
  };
  at::Tensor y, dx;
  EXPECT_EQ(waits_in([&] {
              y = model::fp8_grouped_product(x_there, all, ends_there, GetParam());
              dx = model::fp8_grouped_product_backward(dy_there, all, ends_there, GetParam());
            }),
            0);
  const bool is_rowwise = GetParam().scaling == model::Fp8Scaling::rowwise;
  const bool is_e4m3 = GetParam().gradients == model::Fp8Gradients::e4m3;
  const int narrow = is_rowwise ? 1 + (is_e4m3 ? 1 : 0) : 0;
  EXPECT_EQ(launches("aten::_scaled_grouped_mm"), narrow);
  EXPECT_EQ(launches("aten::_grouped_mm"), 2 - narrow);
  const struct {
    std::size_t expert;
    std::int64_t first, count;
  } own_rows[] = {{0, 0, 11}, {2, 11, 29}};
  for (const auto& own : own_rows) {
    const auto path = model::Path::kernels;
    const auto rows = [&](const at::Tensor& of) { return of.narrow(0, own.first, own.count); };
    const auto expect_near = [&](const at::Tensor& there, const at::Tensor& here) {
      EXPECT_TRUE(at::allclose(rows(there.cpu()).to(at::kFloat), here.to(at::kFloat), 0x1p-7,
                               1e-4 * here.abs().max().item<double>()));
    };
    const model::Quantised& of = experts[own.expert];
    expect_near(y, model::fp8_product(rows(x), of, GetParam(), path));
    expect_near(dx, model::fp8_product_backward(rows(dy), of, GetParam(), path));
  }
}

TEST_P(Fp8OnADevice, RoundsToTheBitsOfTheCpu) {
  const at::Tensor x = waves(256, 256, 0.7).to(at::kBFloat16) * at::exp(waves(256, 1, 1) * 9);
  for (const at::Tensor& of : {x, x.t()}) {
    for (const model::Tile& tile : {model::Tile{}, model::Tile{1, 128}, model::Tile{128, 128}}) {
      const model::Quantised here = model::quantise(of, at::kFloat8_e4m3fn, tile);
      const model::Quantised there = model::quantise(of.to(gpu()), at::kFloat8_e4m3fn, tile);
      EXPECT_TRUE(there.values.cpu().view(at::kByte).equal(here.values.view(at::kByte)));
      EXPECT_TRUE(there.scales.cpu().equal(here.scales));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Recipes, Fp8OnADevice,
    testing::Values(model::Fp8Recipe{},
                    model::Fp8Recipe{model::Fp8Scaling::rowwise, model::Fp8Gradients::e4m3},
                    model::Fp8Recipe{model::Fp8Scaling::block, model::Fp8Gradients::e4m3},
                    model::Fp8Recipe{model::Fp8Scaling::block, model::Fp8Gradients::e5m2}));

TEST(ScaledProduct, IsRefusedAsCudaRefusesIt) {
  const at::Tensor ones = at::ones({32, 32}).to(at::kFloat8_e4m3fn).to(gpu());
  const at::Tensor scales = at::ones({32, 1}).to(gpu());
  const auto product = [&](const at::Tensor& a, const at::Tensor& b, const at::Tensor& of_a,
                           const at::Tensor& of_b) {
    return at::_scaled_mm(a, b, of_a, of_b, {}, {}, at::kBFloat16, true);
  };
  EXPECT_NO_THROW(product(ones, ones.t(), scales, scales.t()));
  EXPECT_THROW(product(ones, ones, scales, scales.t()), c10::Error) << "rows of b";
  EXPECT_THROW(product(ones, ones.t(), scales, scales), c10::Error) << "scales of rows of b";
  EXPECT_THROW(product(ones.narrow(1, 0, 24), ones.t(), scales, scales.t()), c10::Error);
  EXPECT_THROW(product(ones, ones.view(at::kFloat8_e5m2).t(), scales, scales.t()), c10::Error);
}

TEST(GpuAttention, IsChosenByATable) {
  using model::GpuAttention;
  const auto who = [](int capability, at::ScalarType dtype, std::int64_t head_size) {
    return model::choose_gpu_attention(capability, dtype, head_size).who;
  };
  EXPECT_EQ(who(90, at::kBFloat16, 128), GpuAttention::flash);
  EXPECT_EQ(who(80, at::kHalf, 256), GpuAttention::flash);
  EXPECT_EQ(who(89, at::kBFloat16, 256), GpuAttention::efficient);
  EXPECT_EQ(who(90, at::kBFloat16, 512), GpuAttention::efficient);
  EXPECT_EQ(who(90, at::kFloat, 128), GpuAttention::efficient);
  EXPECT_EQ(who(70, at::kHalf, 128), GpuAttention::efficient);
  EXPECT_EQ(who(70, at::kBFloat16, 128), GpuAttention::composed);
  EXPECT_EQ(who(90, at::kBFloat16, 12), GpuAttention::composed);
}

}  // namespace
}  // namespace finetune::tests::simulated_device
