// SPDX-License-Identifier: Apache-2.0
#include "base/fp8_files.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/detail/fp8_tiles.hpp"
#include "base/detail/quantise.hpp"
#include "core/error.hpp"
#include "model/fp8.hpp"
#include "model/packing.hpp"

namespace finetune::base {
namespace {

using core::DType;

constexpr std::string_view suffix_of_weights = ".weight";

std::string fp8_module(const model::Parameter& row) {
  std::string name = row.name;
  if (name.ends_with(suffix_of_weights)) name.resize(name.size() - suffix_of_weights.size());
  return name;
}

/// Without scales: the name that most programs give them.
std::string scales_name(const weights::ModelFiles& files, const model::Parameter& row) {
  const std::string inverse = row.name + "_scale_inv", other = row.name + "_scale";
  return files.contains(inverse) || !files.contains(other) ? inverse : other;
}

[[noreturn]] void refuse_fp8(const weights::ModelFiles& files, const std::string& tensor,
                             const std::string& problem, const std::string& why) {
  core::fail(core::ErrorKind::input, {files.folder().string(), tensor + " " + problem, why,
                                      "Use the files the model was published with."});
}

std::int64_t fp8_blocks(std::int64_t size) {
  return (size + model::fp8_block - 1) / model::fp8_block;
}

/// Where blocks and others have the same shape they mean the same.
struct Scales {
  std::string name;
  std::vector<std::int64_t> shape;
  Fp8Tiles tiles = {};
};

Scales scales_of(const weights::ModelFiles& files, const model::Parameter& row) {
  Scales scales{.name = scales_name(files, row), .shape = {}};
  if (!files.contains(scales.name))
    refuse_fp8(files, scales.name, "is missing",
               row.name + " is in FP8, which means nothing without");
  scales.shape = files.entry(scales.name).shape;
  if (row.shape.size() != 2) refuse_fp8(files, row.name, "is in FP8", "only matrices are read");
  const std::int64_t outputs = row.shape[0], inputs = row.shape[1];
  const bool is_of_rows =
      scales.shape == std::vector{outputs} || scales.shape == std::vector<std::int64_t>{outputs, 1};
  if (core::num_elements(scales.shape) == 1) {
    scales.tiles = {inputs, outputs, inputs};
  } else if (is_of_rows) {
    scales.tiles = {inputs, 1, inputs};
  } else if (scales.shape == std::vector{fp8_blocks(outputs), fp8_blocks(inputs)}) {
    scales.tiles = {inputs, model::fp8_block, model::fp8_block};
  } else {
    refuse_fp8(
        files, scales.name, fmt::format("has shape [{}]", fmt::join(scales.shape, ", ")),
        fmt::format("the matrix is [{}, {}]: neither one scale, nor one for each row, nor for "
                    "each block of {} x {}",
                    outputs, inputs, model::fp8_block, model::fp8_block));
  }
  return scales;
}

/// Scales [first, first + target's), finite.
void read_scales(const weights::ModelFiles& files, const Scales& scales, std::int64_t first,
                 std::span<float> target) {
  files.read({.name = scales.name,
              .shape = scales.shape,
              .dtype = DType::f32,
              .offset = first,
              .count = std::ssize(target)},
             std::as_writable_bytes(target));
  require_finite(files.folder().string(), scales.name, scales.shape, first, target);
}

/// Codes [first, first + target's), none of which is a NaN.
void read_codes(const weights::ModelFiles& files, const model::Parameter& row, std::int64_t first,
                std::span<std::byte> target) {
  files.read({.name = row.name,
              .shape = row.shape,
              .dtype = DType::f8_e4m3,
              .offset = first,
              .count = std::ssize(target)},
             target);
  constexpr auto sign = std::byte{0x80}, nan = std::byte{0x7F};
  const auto found =
      std::ranges::find_if(target, [](std::byte code) { return (code & ~sign) == nan; });
  if (found == target.end()) return;
  const std::int64_t at = first + (found - target.begin());
  refuse_fp8(files, row.name, fmt::format("[{}, {}] is nan", at / row.shape[1], at % row.shape[1]),
             "a model has finite numbers only");
}

std::array<float, 256> values_of_codes() {
  std::array<float, 256> values{};
  for (std::size_t code = 0; code < values.size(); ++code)
    values[code] = core::f8_e4m3_to_float(static_cast<std::uint8_t>(code));
  return values;
}

}  // namespace

bool is_fp8_in(const weights::ModelFiles& files, const model::Parameter& row) {
  return files.contains(row.name) && files.entry(row.name).dtype == DType::f8_e4m3;
}

void add_expected_fp8(const weights::ModelFiles& files, const model::Parameter& row,
                      std::vector<weights::ExpectedTensor>& expected) {
  expected.push_back({.name = row.name, .shape = row.shape, .optional = false});
  const std::string scales = scales_name(files, row);
  // Which shapes they may have is said where they are read.
  expected.push_back(
      {.name = scales,
       .shape = files.contains(scales) ? files.entry(scales).shape : std::vector<std::int64_t>{-1},
       .optional = false});
  const std::string module = fp8_module(row);
  const std::string parent = module.substr(0, module.rfind('.'));
  for (const std::string& name :
       {module + ".input_scale", module + ".activation_scale", module + ".k_scale",
        module + ".v_scale", parent + ".k_scale", parent + ".v_scale"})
    if (files.contains(name))
      expected.push_back({.name = name, .shape = files.entry(name).shape, .optional = true});
}

void read_fp8_plane(const weights::ModelFiles& files, const model::Parameter& row, int plane,
                    std::int64_t first, std::span<std::byte> target) {
  if (!is_fp8_in(files, row))
    refuse_fp8(files, row.name,
               fmt::format("has dtype {}", core::name(files.entry(row.name).dtype)),
               "config.json says that it is in FP8");
  if (plane == model::fp8_plane::values) return read_codes(files, row, first, target);
  const Scales scales = scales_of(files, row);
  const std::span<float> own(reinterpret_cast<float*>(target.data()),
                             target.size() / sizeof(float));
  const bool has_blocks = row.packing.group_size > 0;
  if (core::num_elements(scales.shape) == 1) {
    float all = 0;
    read_scales(files, scales, 0, {&all, 1});
    std::ranges::fill(own, all);
    return;
  }
  if (has_blocks != (scales.tiles.columns == model::fp8_block))
    refuse_fp8(files, scales.name, fmt::format("has shape [{}]", fmt::join(scales.shape, ", ")),
               has_blocks ? "config.json says that there is one for each block of 128 x 128"
                          : "config.json says that there is one for each matrix or row");
  read_scales(files, scales, first, own);
}

void read_fp8_values(const weights::ModelFiles& files, const model::Parameter& row,
                     std::int64_t first, std::span<float> target) {
  static const std::array<float, 256> values = values_of_codes();
  if (target.empty()) return;
  const Scales of = scales_of(files, row);
  const Fp8Tiles& tiles = of.tiles;
  const std::int64_t last = first + std::ssize(target) - 1;
  const std::int64_t begin = first / tiles.inputs / tiles.rows * tiles.across();
  const std::int64_t end = (last / tiles.inputs / tiles.rows + 1) * tiles.across();
  std::vector<float> scales(static_cast<std::size_t>(end - begin));
  read_scales(files, of, begin, scales);
  std::vector<std::byte> codes(target.size());
  read_codes(files, row, first, codes);
  tiles.for_each_run(first, std::ssize(target),
                     [&](std::size_t tile, std::size_t from, std::size_t count) {
                       const float scale = scales[tile - static_cast<std::size_t>(begin)];
                       for (std::size_t i = from; i < from + count; ++i)
                         target[i] = values[std::to_integer<std::size_t>(codes[i])] * scale;
                     });
}

}  // namespace finetune::base
