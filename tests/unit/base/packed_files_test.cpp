// SPDX-License-Identifier: Apache-2.0
// Files in 4 bits that say something else than numbers, or something else than is read here.
#include "base/packed_files.hpp"

#include <cmath>
#include <limits>

#include "core/json.hpp"
#include "kernels/nf4.hpp"
#include "model/packing.hpp"
#include "model/quantization.hpp"
#include "unit/base/tensors.hpp"
#include "unit/weights/support.hpp"

namespace finetune::base::packed_files_test {
namespace {

using tests::Tensors;
using weights::TestFolder;
using weights::Thrown;
using weights::thrown_by;

constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();

model::Parameter nf4_row(bool nests) {
  model::Parameter row{.name = "w", .shape = {3, 64}};
  row.packing = {.kind = model::Packing::Kind::nf4, .in_files = true, .nests = nests};
  return row;
}

model::Parameter gptq_row() {
  model::Parameter row{.name = "w.weight", .shape = {8, 16}};
  row.packing = {.kind = model::Packing::Kind::gptq, .in_files = true, .group_size = 8};
  return row;
}

Thrown reading(const model::Parameter& row, const Tensors& tensors, int plane) {
  const TestFolder folder;
  const auto files = tensors.in(folder);
  const model::Plane kind = model::planes(row, core::DType::f32)[static_cast<std::size_t>(plane)];
  std::vector<std::byte> bytes(static_cast<std::size_t>(kind.size_bytes()));
  return thrown_by([&] { read_plane(files, row, plane, 0, bytes); });
}

Tensors state_with(const std::string& offset) {
  const std::string text =
      R"({"quant_type": "nf4", "blocksize": 64, "shape": [3, 64], "nested_blocksize": 256, )"
      R"("nested_offset": )" +
      offset + "}";
  Tensors tensors;
  tensors.add("w.quant_state.bitsandbytes__nf4", "U8", {std::ssize(text)},
              std::vector<char>(text.begin(), text.end()));
  return tensors;
}

void expect_refused(const Thrown& thrown, const std::string& text) {
  EXPECT_EQ(thrown.kind, core::ErrorKind::input);
  EXPECT_TRUE(thrown.says(text)) << thrown.message;
}

TEST(PackedFiles, NameAScaleThatIsNotFinite) {
  expect_refused(
      reading(nf4_row(false), Tensors().add("w.absmax", "F32", {3}, std::vector{1.0f, 2.0f, nan}),
              model::nf4_plane::maxima),
      "w.absmax [2] is nan");
  expect_refused(
      reading(nf4_row(true), Tensors().add("w.nested_absmax", "F32", {1}, std::vector{infinity}),
              model::nf4_plane::nested_maxima),
      "w.nested_absmax [0] is inf");
  std::vector<std::uint16_t> scales(16, 0x3C00);  // 1 in fp16
  scales[13] = 0x7C00;                            // infinity
  expect_refused(reading(gptq_row(), Tensors().add("w.scales", "F16", {2, 8}, scales),
                         model::gptq_plane::scales),
                 "w.scales [1, 5] is inf");
}

TEST(PackedFiles, NameAnOffsetThatIsNotFiniteInFp32) {
  expect_refused(reading(nf4_row(true), state_with("1e300"), model::nf4_plane::offset),
                 "w.quant_state.bitsandbytes__nf4 has a nested_offset of 1e+300");
  expect_refused(reading(nf4_row(true), state_with("-1e39"), model::nf4_plane::offset),
                 "has a nested_offset of -1e+39");
}

TEST(PackedFiles, ReadGroupsOfBothSizes) {
  const model::Parameter row = gptq_row();
  std::vector<std::int64_t> wide(16);
  for (std::size_t i = 0; i < wide.size(); ++i)
    wide[i] = static_cast<std::int64_t>(i % 2);
  const TestFolder folder;
  const auto files = Tensors().add("w.g_idx", "I64", {16}, wide).in(folder);
  std::vector<std::int32_t> groups(8);
  read_plane(files, row, model::gptq_plane::groups, 5, std::as_writable_bytes(std::span(groups)));
  EXPECT_EQ(groups, (std::vector<std::int32_t>{1, 0, 1, 0, 1, 0, 1, 0}));
  wide[7] = std::int64_t{1} << 32;  // 0 in its lower half
  expect_refused(
      reading(row, Tensors().add("w.g_idx", "I64", {16}, wide), model::gptq_plane::groups),
      "w.g_idx gives input 7 to group -1");
}

Thrown wholeness(const model::Parameter& row, const Tensors& tensors) {
  model::ParameterTable table;
  table.rows = {row};
  const TestFolder folder;
  const auto files = tensors.in(folder);
  try {
    require_whole(files, table);
  } catch (const core::Error& error) {
    return {error.kind(), error.what()};
  }
  return {};
}

TEST(PackedFiles, NameWhatIsMissingBesideCodes) {
  expect_refused(wholeness(gptq_row(), Tensors().add("w.qweight", "I32", {2, 8},
                                                     std::vector<std::int32_t>(16))),
                 "w.g_idx is missing (it says which group each input");
  expect_refused(wholeness(nf4_row(true), Tensors().add("w", "U8", {96, 1}, std::vector<char>(96))),
                 "w.quant_state.bitsandbytes__nf4 is missing (bitsandbytes says there");
  // Not packed at all: the list of what differs says so.
  EXPECT_EQ(
      wholeness(nf4_row(true), Tensors().add("w", "F32", {3, 64}, std::vector<float>(192))).message,
      "");
  EXPECT_EQ(
      wholeness(gptq_row(), Tensors().add("w.weight", "F32", {8, 16}, std::vector<float>(128)))
          .message,
      "");
}

TEST(PackedFiles, AreNoGptqWhereExpertsAreOneTensor) {
  model::ParameterTable table;
  table.rows = {{.name = "experts.down_proj", .shape = {4, 8, 16}, .role = model::Role::expert}};
  model::Quantization quantization;
  quantization.packing = gptq_row().packing;
  try {
    model::mark_packed(quantization, "m/config.json", table);
    ADD_FAILURE() << "nothing thrown";
  } catch (const core::Error& error) {
    EXPECT_EQ(std::string(error.what()),
              "m/config.json: experts.down_proj cannot be packed in 4 bits by GPTQ (it holds the 4 "
              "experts of a layer as one tensor, but GPTQ's files hold only matrices). Use the "
              "original model with adapter.name = \"qlora\".");
  }
}

Thrown levels(std::vector<float> codes, std::vector<float> nested, bool nests = true) {
  Tensors tensors;
  if (!codes.empty()) tensors.add("w.quant_map", "F32", {16}, codes);
  if (!nested.empty()) tensors.add("w.nested_quant_map", "F32", {256}, nested);
  tensors.add("w", "U8", {96, 1}, std::vector<char>(96));
  model::ParameterTable table;
  table.rows = {nf4_row(nests)};
  const TestFolder folder;
  const auto files = tensors.in(folder);
  try {
    require_known_levels(files, table);
  } catch (const core::Error& error) {
    return {error.kind(), error.what()};
  }
  return {};
}

TEST(PackedFiles, MeanByTheirCodesWhatTheyMeanHere) {
  const std::vector<float> codes(kernels::nf4_levels().begin(), kernels::nf4_levels().end());
  const std::vector<float> nested(kernels::nested_levels().begin(), kernels::nested_levels().end());
  EXPECT_EQ(levels(codes, nested).message, "");
  EXPECT_EQ(levels({}, {}).message, "");

  std::vector<float> rounded = codes;
  for (float& level : rounded)
    level = std::nextafter(level, 2.0f * level);
  EXPECT_EQ(levels(rounded, nested).message, "");

  std::vector<float> other = codes;
  other[3] = -0.25f;
  expect_refused(levels(other, nested), "w.quant_map [3] is -0.25 instead of -0.39");
  other[3] = nan;
  expect_refused(levels(other, nested), "w.quant_map [3] is nan");
  std::vector<float> swapped = nested;
  std::swap(swapped[10], swapped[11]);
  expect_refused(levels(codes, swapped), "w.nested_quant_map [10] is ");
  EXPECT_EQ(levels(codes, swapped, false).message, "");  // not used
}

}  // namespace
}  // namespace finetune::base::packed_files_test
