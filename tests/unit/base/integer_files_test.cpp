// SPDX-License-Identifier: Apache-2.0
// Files with integers row by row that say something else than numbers, or something else than
// config.json does.

#include <limits>

#include "base/packed_files.hpp"
#include "model/packing.hpp"
#include "unit/base/tensors.hpp"
#include "unit/weights/support.hpp"

namespace finetune::base::integer_files_test {
namespace {

using model::Packing;
using tests::Tensors;
using weights::TestFolder;
using weights::thrown_by;

model::Parameter row_of(Packing::Writer writer, std::int64_t group = 0, bool has_zeros = false) {
  const bool are_words = writer == Packing::Writer::compressed_words;
  return {.name = "m.w.weight",
          .shape = {3, 16},
          .packing = {.kind = Packing::Kind::integers,
                      .in_files = true,
                      .nests = false,
                      .group_size = group,
                      .bits = are_words ? 4 : 8,
                      .has_zeros = has_zeros,
                      .writer = writer}};
}

model::Parameter nvfp4_row() {
  return {.name = "m.w.weight",
          .shape = {3, 16},
          .packing = {.kind = Packing::Kind::nvfp4, .in_files = true, .nests = false}};
}

template <typename T>
std::vector<T> read(const model::Parameter& row, const Tensors& tensors, int plane) {
  const TestFolder folder;
  const auto files = tensors.in(folder);
  const model::Plane kind = model::planes(row, core::DType::f32)[static_cast<std::size_t>(plane)];
  std::vector<T> values(static_cast<std::size_t>(kind.size_bytes()) / sizeof(T));
  read_plane(files, row, plane, 0, std::as_writable_bytes(std::span(values)));
  return values;
}

void expect_refused(const model::Parameter& row, const Tensors& tensors, int plane,
                    const std::string& text) {
  const auto thrown = thrown_by([&] { (void)read<std::byte>(row, tensors, plane); });
  EXPECT_EQ(thrown.kind, core::ErrorKind::input);
  EXPECT_TRUE(thrown.says(text)) << thrown.message;
}

constexpr auto words = Packing::Writer::compressed_words, bytes = Packing::Writer::compressed_bytes,
               bitsandbytes = Packing::Writer::bitsandbytes;

TEST(IntegerFiles, HaveOneScaleForAllRowsOrOneForEach) {
  const std::vector<float> three = {1, 2, 3};
  for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{3}, {3, 1}})
    EXPECT_EQ(read<float>(row_of(bytes), Tensors().add("m.w.weight_scale", "F32", shape, three),
                          model::integers_plane::scales),
              three);
  EXPECT_EQ(
      read<float>(row_of(bytes), Tensors().add("m.w.weight_scale", "F32", {1}, std::vector{0.5f}),
                  model::integers_plane::scales),
      std::vector<float>(3, 0.5f));
  EXPECT_EQ(read<float>(row_of(bitsandbytes), Tensors().add("m.w.SCB", "F32", {3}, three),
                        model::integers_plane::scales),
            three);
}

TEST(IntegerFiles, NameScalesOfAnotherShape) {
  const std::vector<float> six(6, 1.0f);
  expect_refused(row_of(bytes), Tensors().add("m.w.weight_scale", "F32", {3, 2}, six),
                 model::integers_plane::scales,
                 "m.w.weight_scale has shape [3, 2] (config.json says that there are [3, 1])");
  expect_refused(row_of(words, 8), Tensors().add("m.w.weight_scale", "F32", {2, 3}, six),
                 model::integers_plane::scales, "config.json says that there are [3, 2]");
}

TEST(IntegerFiles, NameAScaleThatIsNotFinite) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  expect_refused(row_of(bytes),
                 Tensors().add("m.w.weight_scale", "F32", {3, 1}, std::vector{1.0f, nan, 1.0f}),
                 model::integers_plane::scales, "m.w.weight_scale [1, 0] is nan");
}

TEST(IntegerFiles, HaveZerosAsBytesOrAsWordsOfOutputs) {
  namespace at_plane = model::integers_plane;
  const model::Parameter row = row_of(words, 8, true);
  const std::vector<std::uint8_t> expected = {1, 2, 3, 4, 5, 15};
  EXPECT_EQ(read<std::uint8_t>(row,
                               Tensors().add("m.w.weight_zero_point", "I8", {3, 2},
                                             std::vector<std::int8_t>{-7, -6, -5, -4, -3, 7}),
                               at_plane::zeros),
            expected);
  EXPECT_EQ(read<std::uint8_t>(row,
                               Tensors().add("m.w.weight_zero_point", "I32", {1, 2},
                                             std::vector<std::int32_t>{0x531, 0xF42}),
                               at_plane::zeros),
            expected);
}

TEST(IntegerFiles, WithASignGetHalfOfTheCodesMore) {
  std::vector<std::int8_t> codes(48, 0);
  codes[0] = -128;
  codes[1] = 127;
  const auto got =
      read<std::uint8_t>(row_of(bytes), Tensors().add("m.w.weight", "I8", {3, 16}, codes),
                         model::integers_plane::codes);
  EXPECT_EQ(got[0], 0);
  EXPECT_EQ(got[1], 255);
  EXPECT_EQ(got[2], 128);
}

TEST(IntegerFiles, RefuseOtherOrdersOfBitsandbytes) {
  model::ParameterTable table;
  table.rows = {row_of(bitsandbytes)};
  const auto with_order = [&](std::uint8_t order) {
    Tensors tensors;
    tensors.add("m.w.weight", "I8", {3, 16}, std::vector<std::int8_t>(48, 1))
        .add("m.w.SCB", "F32", {3}, std::vector<float>(3, 1))
        .add("m.w.weight_format", "U8", {}, std::vector{order});
    const TestFolder folder;
    const auto files = tensors.in(folder);
    std::vector<weights::ExpectedTensor> expected;
    add_expected(files, table.row(0), table, expected);
    return expected.size();
  };
  EXPECT_EQ(with_order(0), 3u);
  const auto thrown = thrown_by([&] { with_order(2); });
  EXPECT_TRUE(thrown.says("m.w.weight_format is 2 (codes in rows are read")) << thrown.message;
}

TEST(Nvfp4Files, NameAScaleOrAFactorWithoutFiniteNumbers) {
  namespace at_plane = model::nvfp4_plane;
  expect_refused(nvfp4_row(),
                 Tensors().add("m.w.weight_scale", "F8_E4M3", {3, 1},
                               std::vector<std::uint8_t>{0x38, 0xFF, 0x38}),
                 at_plane::scales, "m.w.weight_scale is nan at element 1");
  for (const float factor : {0.0f, -1.0f})
    expect_refused(nvfp4_row(),
                   Tensors().add("m.w.weight_global_scale", "F32", {1}, std::vector{factor}),
                   at_plane::factor, "all scales are divided by it");
}

}  // namespace
}  // namespace finetune::base::integer_files_test
