// SPDX-License-Identifier: Apache-2.0
#include "base/packed_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "base/detail/awq_files.hpp"
#include "base/detail/integer_files.hpp"
#include "base/detail/read_scales.hpp"
#include "base/detail/unpacked_values.hpp"
#include "base/fp8_files.hpp"
#include "base/mxfp4_files.hpp"
#include "core/error.hpp"
#include "core/json.hpp"
#include "kernels/gptq.hpp"
#include "kernels/nf4.hpp"
#include "model/packing.hpp"

namespace finetune::base {
namespace {

using model::Packing;

constexpr const char* state_suffix = ".quant_state.bitsandbytes__nf4";
constexpr const char *level_suffix = ".quant_map", *nested_level_suffix = ".nested_quant_map";
constexpr std::int64_t largest_state_bytes = 65536;

bool is_awq(const model::Parameter& row) {
  return row.packing.writer == Packing::Writer::awq;
}

bool is_by_row(const model::Parameter& row) {
  return row.packing.kind == Packing::Kind::integers || row.packing.kind == Packing::Kind::nvfp4;
}

std::string plane_name(const model::Parameter& row, const model::Plane& plane) {
  return model::packed_name(row) + plane.suffix;
}

std::string bias_name(const model::Parameter& row) {
  return model::packed_name(row) + ".bias";
}

[[noreturn]] void refuse(
    const weights::ModelFiles& files, const std::string& tensor, const std::string& problem,
    const std::string& why,
    const std::string& remedy = "Use the files the model was published with.") {
  core::fail(core::ErrorKind::input,
             {files.folder().string(), tensor + " " + problem, why, remedy});
}

/// What bitsandbytes writes beside a tensor, checked; returns the offset of its maxima.
float read_offset(const weights::ModelFiles& files, const model::Parameter& row) {
  const std::string name = row.name + state_suffix;
  const auto& entry = files.entry(name);
  const std::int64_t count = core::num_elements(entry.shape);
  if (entry.dtype != core::DType::u8 || count > largest_state_bytes)
    refuse(files, name, "is not a text of settings", "it says how the tensor next to it is packed");
  std::string text(static_cast<std::size_t>(count), '\0');
  files.read(
      {.name = name, .shape = entry.shape, .dtype = core::DType::u8, .offset = 0, .count = count},
      std::as_writable_bytes(std::span(text)));
  const core::Json state = core::parse_json(text, (files.folder() / name).string());
  const auto is = [&](const char* key, const core::Json& value) {
    return state.is_object() && state.contains(key) && state[key] == value;
  };
  const bool fits = is("quant_type", "nf4") && is("blocksize", kernels::nf4_block) &&
                    is("shape", row.shape) &&
                    (!row.packing.nests ||
                     (is("nested_blocksize", kernels::nested_block) &&
                      state.contains("nested_offset") && state["nested_offset"].is_number()));
  if (!fits)
    refuse(files, name,
           fmt::format("does not describe NF4 of {} in blocks of {}", row.name, kernels::nf4_block),
           "no other kind is read");
  if (!row.packing.nests) return 0.0f;
  const auto offset = state["nested_offset"].get<double>();
  if (!(std::abs(offset) <= double{std::numeric_limits<float>::max()}))
    refuse(files, name, fmt::format("has a nested_offset of {}", offset),
           "it is no finite number in fp32");
  return static_cast<float>(offset);
}

/// Files may say what their codes mean: only that is read which `levels` say as well.
void require_levels(const weights::ModelFiles& files, const std::string& name,
                    std::span<const float> levels) {
  if (!files.contains(name)) return;
  constexpr float rounding = 1e-5f;  // in which programs may differ
  std::vector<float> values(levels.size());
  files.read({.name = name,
              .shape = {std::ssize(levels)},
              .dtype = core::DType::f32,
              .offset = 0,
              .count = std::ssize(levels)},
             std::as_writable_bytes(std::span(values)));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::abs(values[i] - levels[i]) <= rounding * std::abs(levels[i])) continue;
    refuse(files, name, fmt::format("[{}] is {} instead of {}", i, values[i], levels[i]),
           "codes with other levels are not read");
  }
}

void require_groups(const weights::ModelFiles& files, const model::Parameter& row,
                    std::span<const std::byte> groups, std::int64_t first) {
  const std::int64_t num_groups =
      model::planes(row, core::DType::f32)[model::gptq_plane::scales].shape[0];
  const std::span<const std::int32_t> g_idx(reinterpret_cast<const std::int32_t*>(groups.data()),
                                            groups.size() / sizeof(std::int32_t));
  const std::int64_t bad = kernels::first_bad_group(g_idx, num_groups);
  if (bad < 0) return;
  refuse(
      files, model::packed_name(row) + ".g_idx",
      fmt::format("gives input {} to group {}", first + bad, g_idx[static_cast<std::size_t>(bad)]),
      fmt::format("there are {} groups", num_groups));
}

/// Some programs keep g_idx in 64 bits.
void read_wide_groups(const weights::ModelFiles& files, const std::string& name,
                      const model::Plane& plane, std::int64_t first, std::span<std::byte> target) {
  const std::span<std::int32_t> groups(reinterpret_cast<std::int32_t*>(target.data()),
                                       target.size() / sizeof(std::int32_t));
  std::vector<std::int64_t> wide(groups.size());
  files.read({.name = name,
              .shape = plane.shape,
              .dtype = core::DType::i64,
              .offset = first,
              .count = std::ssize(wide)},
             std::as_writable_bytes(std::span(wide)));
  // What 32 bits do not hold is no group either.
  std::ranges::transform(wide, groups.begin(), [](std::int64_t group) {
    const auto narrow = static_cast<std::int32_t>(group);
    return narrow == group ? narrow : -1;
  });
}

/// What else a row of the files needs, where its codes are there: without it they mean nothing.
void require_beside(const weights::ModelFiles& files, const model::Parameter& row) {
  const bool is_gptq = row.packing.kind == Packing::Kind::gptq;
  const std::string codes = is_gptq ? model::packed_name(row) + ".qweight" : row.name;
  const std::string wanted = is_gptq ? model::packed_name(row) + ".g_idx" : row.name + state_suffix;
  if (files.contains(wanted) || !files.contains(codes)) return;
  if (is_gptq)
    refuse(files, wanted, "is missing",
           "it says which group each input of the matrix belongs to, and nothing else does",
           "Save the model again with GPTQModel or AutoGPTQ, which write it.");
  if (files.entry(codes).dtype != core::DType::u8) return;  // not packed at all
  refuse(files, wanted, "is missing", "bitsandbytes says there how the 4 bits are to be read",
         "Save the model again with save_pretrained of Transformers, or quantise the original by "
         "finetune quantize.");
}

}  // namespace

void add_expected(const weights::ModelFiles& files, const model::Parameter& row,
                  const model::ParameterTable& table,
                  std::vector<weights::ExpectedTensor>& expected) {
  if (row.packing.kind == Packing::Kind::fp8) return add_expected_fp8(files, row, expected);
  if (row.packing.kind == Packing::Kind::mxfp4) return add_expected_mxfp4(files, row, expected);
  if (is_awq(row)) return add_expected_awq(row, expected);
  if (is_by_row(row)) return add_expected_rows(files, row, expected);
  const bool is_gptq = row.packing.kind == Packing::Kind::gptq;
  for (const model::Plane& plane : model::planes(row, core::DType::f32))
    if (plane.suffix != ".offset")
      expected.push_back({.name = plane_name(row, plane), .shape = plane.shape, .optional = false});
  if (is_gptq) {
    const std::string bias = bias_name(row);
    const bool is_known = std::ranges::any_of(
        table.rows, [&](const model::Parameter& other) { return other.name == bias; });
    if (!is_known) expected.push_back({.name = bias, .shape = {row.shape[0]}, .optional = true});
    return;
  }
  const std::int64_t state_bytes = -1;  // whatever its text needs
  expected.push_back({.name = row.name + state_suffix, .shape = {state_bytes}, .optional = false});
  expected.push_back({.name = row.name + level_suffix, .shape = {16}, .optional = true});
  expected.push_back({.name = row.name + nested_level_suffix, .shape = {256}, .optional = true});
}

void read_plane(const weights::ModelFiles& files, const model::Parameter& row, int i,
                std::int64_t first, std::span<std::byte> target) {
  if (row.packing.kind == Packing::Kind::fp8) return read_fp8_plane(files, row, i, first, target);
  if (row.packing.kind == Packing::Kind::mxfp4)
    return read_mxfp4_plane(files, row, i, first, target);
  if (is_awq(row)) return read_awq_plane(files, row, i, first, target);
  if (is_by_row(row)) return read_rows_plane(files, row, i, first, target);
  const model::Plane plane = model::planes(row, core::DType::f32).at(static_cast<std::size_t>(i));
  if (plane.suffix == ".offset") {
    const float offset = read_offset(files, row);
    std::memcpy(target.data(), &offset, sizeof offset);
    return;
  }
  const bool is_gptq = row.packing.kind == Packing::Kind::gptq;
  const bool is_groups = is_gptq && i == model::gptq_plane::groups;
  if (plane.dtype == core::DType::f32 || plane.dtype == core::DType::f16)
    return read_finite(files, plane_name(row, plane), plane, first, target);
  if (is_groups && files.entry(plane_name(row, plane)).dtype == core::DType::i64) {
    read_wide_groups(files, plane_name(row, plane), plane, first, target);
  } else {
    files.read({.name = plane_name(row, plane),
                .shape = plane.shape,
                .dtype = plane.dtype,
                .offset = first,
                .count = std::ssize(target) / core::size_bytes(plane.dtype)},
               target);
  }
  if (is_groups) require_groups(files, row, target, first);
}

void require_whole(const weights::ModelFiles& files, const model::ParameterTable& table) {
  for (const model::Parameter& of_table : table.rows) {
    const model::Parameter row = as_in_files(of_table);
    const bool has_more = (row.packing.kind == Packing::Kind::gptq && !is_awq(row)) ||
                          row.packing.kind == Packing::Kind::nf4;
    if (row.packing.in_files && has_more) require_beside(files, row);
  }
}

void require_known_levels(const weights::ModelFiles& files, const model::ParameterTable& table) {
  for (const model::Parameter& row : table.rows) {
    if (row.packing.kind != Packing::Kind::nf4 || !row.packing.in_files) continue;
    require_levels(files, row.name + level_suffix, kernels::nf4_levels());
    if (row.packing.nests)
      require_levels(files, row.name + nested_level_suffix, kernels::nested_levels());
  }
}

void require_zero_biases(const weights::ModelFiles& files, const model::ParameterTable& table) {
  for (const model::Parameter& of_table : table.rows) {
    const model::Parameter row = as_in_files(of_table);
    const bool is_gptq = row.packing.kind == Packing::Kind::gptq && !is_awq(row);
    if (!is_gptq || !files.contains(bias_name(row))) continue;
    const std::string bias = bias_name(row);
    if (std::ranges::any_of(table.rows,
                            [&](const model::Parameter& other) { return other.name == bias; }))
      continue;
    std::vector<float> values(static_cast<std::size_t>(row.shape[0]));
    files.read({.name = bias,
                .shape = {row.shape[0]},
                .dtype = core::DType::f32,
                .offset = 0,
                .count = row.shape[0]},
               std::as_writable_bytes(std::span(values)));
    if (std::ranges::any_of(values, [](float value) { return value != 0; }))
      refuse(files, bias, "is not zero", "the model's family has no bias there");
  }
}

}  // namespace finetune::base
