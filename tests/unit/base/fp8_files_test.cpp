// SPDX-License-Identifier: Apache-2.0
// Matrices in FP8 as files have them: written to the nearest value, read back, and refused where
// they say something else.

#include "base/fp8_files.hpp"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <cmath>
#include <cstring>

#include "base/fp8_export.hpp"
#include "model/fp8.hpp"
#include "model/packing.hpp"
#include "unit/base/fp8_model.hpp"
#include "unit/weights/support.hpp"

namespace finetune::base::fp8_files_test {
namespace {

using core::DType;
using weights::TestFolder;
using weights::thrown_by;

constexpr std::int64_t outputs = 200, inputs = 300;  // no multiples of 128

/// Numbers of many magnitudes; the block in the corner is of zeros.
at::Tensor values() {
  const at::Tensor i = at::arange(outputs, at::kDouble).unsqueeze(1);
  const at::Tensor j = at::arange(inputs, at::kDouble).unsqueeze(0);
  at::Tensor x = at::sin(i * 0.7 + j * 1.3) * at::exp(3 * at::sin(i * 3)) * at::exp(2 * at::cos(j));
  x.narrow(0, 128, outputs - 128).narrow(1, 256, inputs - 256).zero_();
  return x.to(at::kFloat);
}

model::Parameter matrix() {
  return {.name = "a.weight", .shape = {outputs, inputs}, .role = model::Role::linear};
}

ReadValues reader(const at::Tensor& x) {
  return [x](std::int64_t first, std::span<float> target) {
    std::memcpy(target.data(), x.const_data_ptr<float>() + first, target.size() * sizeof(float));
  };
}

/// Of each element of the matrix.
at::Tensor spread(const std::vector<float>& scales, Fp8Scales of) {
  const at::Tensor all = at::tensor(scales);
  if (of == Fp8Scales::tensor) return all.expand({outputs, inputs});
  return all.view({2, 3})
      .repeat_interleave(128, 0)
      .repeat_interleave(128, 1)
      .narrow(0, 0, outputs)
      .narrow(1, 0, inputs);
}

class Fp8Written : public testing::TestWithParam<Fp8Scales> {};

TEST_P(Fp8Written, HasTheNearestValuesOfItsScales) {
  const at::Tensor x = values();
  const model::Parameter row = matrix();
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const std::vector<float> scales = fp8_scales(row, GetParam(), dtype, reader(x));
    const at::Tensor by_element = spread(scales, GetParam());
    std::vector<std::byte> codes(static_cast<std::size_t>(row.count()));
    fp8_codes(row, GetParam(), scales, 0,
              {x.const_data_ptr<float>(), static_cast<std::size_t>(x.numel())}, codes);
    const at::Tensor got = at::from_blob(codes.data(), {outputs, inputs}, at::kByte);
    const at::Tensor expected = (x / by_element).clamp(-448, 448).to(at::kFloat8_e4m3fn);
    EXPECT_TRUE(at::equal(got, expected.view(at::kByte)));
    // From any element on.
    std::vector<std::byte> piece(777);
    fp8_codes(row, GetParam(), scales, 40001, {x.const_data_ptr<float>() + 40001, piece.size()},
              piece);
    EXPECT_EQ(std::memcmp(piece.data(), codes.data() + 40001, piece.size()), 0);
  }
}

TEST_P(Fp8Written, ScalesTheLargestTo448) {
  const at::Tensor x = values();
  const std::vector<float> scales = fp8_scales(matrix(), GetParam(), DType::f32, reader(x));
  if (GetParam() == Fp8Scales::tensor) {
    ASSERT_EQ(scales.size(), 1u);
    EXPECT_EQ(scales[0], x.abs().max().item<float>() / 448);
    return;
  }
  ASSERT_EQ(scales.size(), 6u);
  EXPECT_EQ(scales[1], x.narrow(0, 0, 128).narrow(1, 128, 128).abs().max().item<float>() / 448);
  EXPECT_EQ(scales[3], x.narrow(0, 128, 72).narrow(1, 0, 128).abs().max().item<float>() / 448);
  EXPECT_EQ(scales[5], 1) << "a block of zeros";
  const std::vector<float> rounded = fp8_scales(matrix(), GetParam(), DType::bf16, reader(x));
  EXPECT_EQ(rounded[3], core::bf16_to_float(core::float_to_bf16(scales[3])));
}

INSTANTIATE_TEST_SUITE_P(Scales, Fp8Written, testing::Values(Fp8Scales::tensor, Fp8Scales::block));

TEST(Fp8Written, TakesFiniteNumbersOnly) {
  at::Tensor x = values();
  x[3][7] = NAN;
  const auto thrown =
      thrown_by([&] { (void)fp8_scales(matrix(), Fp8Scales::tensor, DType::f32, reader(x)); });
  EXPECT_TRUE(thrown.says("a.weight: element [3, 7] is nan")) << thrown.message;
}

/// One file of a matrix and its scales.
struct Files {
  TestFolder folder;
  at::Tensor codes = at::arange(outputs * inputs, at::kLong)
                         .mul(37)
                         .remainder(126)
                         .to(at::kByte)
                         .view({outputs, inputs});

  weights::ModelFiles with(const std::string& name, const at::Tensor& scales,
                           const char* dtype = "F32") const {
    std::string data(static_cast<const char*>(codes.const_data_ptr()), codes.nbytes());
    core::Json header = {
        {"a.weight",
         {{"dtype", "F8_E4M3"}, {"shape", {outputs, inputs}}, {"data_offsets", {0, data.size()}}}}};
    if (!name.empty()) {
      header[name] = {{"dtype", dtype},
                      {"shape", scales.sizes().vec()},
                      {"data_offsets", {data.size(), data.size() + scales.nbytes()}}};
      data.append(static_cast<const char*>(scales.const_data_ptr()), scales.nbytes());
    }
    folder.put("model.safetensors", weights::file_of(header.dump(), data));
    return weights::ModelFiles::open(folder.path());
  }
  at::Tensor numbers() const { return codes.view(at::kFloat8_e4m3fn).to(at::kFloat); }
};

void expect_values(const weights::ModelFiles& files, const at::Tensor& expected) {
  for (const std::int64_t first : {std::int64_t{0}, std::int64_t{299}, std::int64_t{38500}}) {
    std::vector<float> got(static_cast<std::size_t>(outputs * inputs - first));
    read_fp8_values(files, matrix(), first, got);
    EXPECT_EQ(std::memcmp(got.data(), expected.contiguous().const_data_ptr<float>() + first,
                          got.size() * sizeof(float)),
              0)
        << first;
  }
}

TEST(Fp8Files, AreReadByWhatTheirScalesAreOf) {
  const Files of;
  const at::Tensor scale = at::full({}, 0.3, at::kFloat);
  expect_values(of.with("a.weight_scale", scale), of.numbers() * scale);
  const at::Tensor rows = at::rand({outputs, 1}).add(0.1).to(at::kBFloat16);
  expect_values(of.with("a.weight_scale", rows, "BF16"), of.numbers() * rows.to(at::kFloat));
  expect_values(of.with("a.weight_scale_inv", rows.to(at::kFloat).flatten()),
                of.numbers() * rows.to(at::kFloat));
  const at::Tensor blocks = at::rand({2, 3}).add(0.1);
  const std::vector<float> list(blocks.const_data_ptr<float>(), blocks.const_data_ptr<float>() + 6);
  expect_values(of.with("a.weight_scale_inv", blocks),
                of.numbers() * spread(list, Fp8Scales::block));
}

TEST(Fp8Files, OneScaleIsThatOfEachRowInMemory) {
  const Files of;
  const auto files = of.with("a.weight_scale", at::full({1}, 0.25, at::kFloat));
  model::Parameter row = matrix();
  row.packing = {.kind = model::Packing::Kind::fp8, .in_files = true};
  std::vector<float> scales(3);
  read_fp8_plane(files, row, model::fp8_plane::scales, 197,
                 std::as_writable_bytes(std::span(scales)));
  EXPECT_EQ(scales, (std::vector<float>{0.25, 0.25, 0.25}));
  std::vector<std::byte> codes(5);
  read_fp8_plane(files, row, model::fp8_plane::values, 301, codes);
  EXPECT_EQ(std::memcmp(codes.data(), of.codes.const_data_ptr<std::uint8_t>() + 301, 5), 0);
}

TEST(Fp8Files, AreRefusedWhereTheySaySomethingElse) {
  Files of;
  const auto refusal = [&](const std::string& name, const at::Tensor& scales) {
    const auto files = of.with(name, scales);
    std::vector<float> target(5);
    return thrown_by([&] { read_fp8_values(files, matrix(), 0, target); });
  };
  EXPECT_TRUE(refusal("", {}).says("a.weight_scale_inv is missing"));
  EXPECT_TRUE(refusal("a.weight_scale_inv", at::ones({3, 2}))
                  .says("a.weight_scale_inv has shape [3, 2] (the matrix is [200, 300]"));
  EXPECT_TRUE(refusal("a.weight_scale", at::full({1}, INFINITY, at::kFloat))
                  .says("a.weight_scale [0] is inf"));
  of.codes[0][3] = 0xFF;
  EXPECT_TRUE(refusal("a.weight_scale", at::ones({1})).says("a.weight [0, 3] is nan"));
}

TEST(Fp8Files, HaveTheScalesThatConfigJsonSays) {
  const Files of;
  model::Parameter row = matrix();
  row.packing = {.kind = model::Packing::Kind::fp8, .in_files = true, .group_size = 128};
  std::vector<float> scales(6);
  const auto files = of.with("a.weight_scale_inv", at::ones({outputs, 1}));
  EXPECT_TRUE(thrown_by([&] {
                read_fp8_plane(files, row, model::fp8_plane::scales, 0,
                               std::as_writable_bytes(std::span(scales)));
              }).says("there is one for each block of 128 x 128"));
}

TEST(Fp8Files, WhatWasWrittenIsRead) {
  const TestFolder folder;
  model::ParameterTable table;
  table.rows = {matrix()};
  const at::Tensor x = values();
  weights::export_folder(folder / "dense",
                         {.tensors = {{"a.weight", DType::bf16, {outputs, inputs}}}},
                         [&](std::string_view, std::int64_t first, std::span<float> piece) {
                           reader(x)(first, piece);
                         },
                         {});
  const auto dense = weights::ModelFiles::open(folder / "dense");
  table.rows[0].packing = {.kind = model::Packing::Kind::fp8, .in_files = true};
  for (const Fp8Scales of : {Fp8Scales::tensor, Fp8Scales::block}) {
    const auto out = folder / (of == Fp8Scales::tensor ? "tensor" : "block");
    tests::write_fp8(dense, table, of, out);
    const auto files = weights::ModelFiles::open(out);
    EXPECT_EQ(files.entry("a.weight").dtype, DType::f8_e4m3);
    EXPECT_EQ(files.entry("a.weight_scale").dtype, DType::bf16);
    std::vector<float> got(static_cast<std::size_t>(outputs * inputs));
    read_fp8_values(files, matrix(), 0, got);
    const at::Tensor read = at::from_blob(got.data(), {outputs, inputs}, at::kFloat);
    const at::Tensor rounded = x.to(at::kBFloat16).to(at::kFloat);
    // Half of the last of three bits behind the point, or of the smallest number.
    const at::Tensor least = rounded.abs().max() / 448 / 1024 * 1.01;
    EXPECT_TRUE(
        ((read - rounded).abs() <= (rounded.abs() / 16 * 1.01).maximum(least)).all().item<bool>());
  }
}

}  // namespace
}  // namespace finetune::base::fp8_files_test
