// SPDX-License-Identifier: Apache-2.0
#include "base/detail/integer_files.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "base/detail/quantise.hpp"
#include "base/detail/read_scales.hpp"
#include "core/error.hpp"
#include "model/packing.hpp"

namespace finetune::base {
namespace {

using core::DType;
using model::Packing;
using Shape = std::vector<std::int64_t>;

constexpr std::int64_t bytes_a_word = 4;
constexpr std::uint8_t row_major = 0;  // bitsandbytes' order of codes

[[noreturn]] void refuse_rows(const weights::ModelFiles& files, const std::string& tensor,
                              const std::string& problem, const std::string& why) {
  core::fail(core::ErrorKind::input, {files.folder().string(), tensor + " " + problem, why,
                                      "Use the files the model was published with."});
}

std::string module_of_rows(const model::Parameter& row) {
  return row.name.substr(0, row.name.rfind('.'));
}

bool is_of_bitsandbytes(const model::Parameter& row) {
  return row.packing.writer == Packing::Writer::bitsandbytes;
}

bool is_in_words(const model::Parameter& row) {
  return row.packing.writer == Packing::Writer::compressed_words;
}

std::string scales_name_of_rows(const model::Parameter& row) {
  return is_of_bitsandbytes(row) ? module_of_rows(row) + ".SCB" : row.name + "_scale";
}

std::string zeros_name(const model::Parameter& row) {
  return row.name + "_zero_point";
}

/// [out, groups], as `row` is to have scales.
Shape groups_of(const model::Parameter& row) {
  return model::planes(row, DType::f32).at(model::integers_plane::scales).shape;
}

/// Whether a tensor has an element for each group; rows may be the only dim.
bool is_one_for_each(const Shape& shape, const Shape& groups) {
  return shape == groups || (groups[1] == 1 && shape == Shape{groups[0]});
}

/// What scales rows and groups. Throws for other shapes than one for each, or one for all rows.
Shape shape_of_groups(const weights::ModelFiles& files, const model::Parameter& row,
                      const std::string& name) {
  const Shape groups = groups_of(row), shape = files.entry(name).shape;
  const bool is_one = core::num_elements(shape) == 1 && groups[1] == 1;
  if (!is_one && !is_one_for_each(shape, groups))
    refuse_rows(files, name, fmt::format("has shape [{}]", fmt::join(shape, ", ")),
                fmt::format("config.json says that there are [{}]", fmt::join(groups, ", ")));
  return shape;
}

void read_bytes(const weights::ModelFiles& files, const std::string& name, const Shape& shape,
                DType dtype, std::int64_t first, std::span<std::byte> target) {
  files.read({.name = name,
              .shape = shape,
              .dtype = dtype,
              .offset = first,
              .count = std::ssize(target) / core::size_bytes(dtype)},
             target);
}

/// Bytes [first, ...) of a tensor of words.
void read_bytes_of_words(const weights::ModelFiles& files, const std::string& name,
                         const Shape& shape, std::int64_t first, std::span<std::byte> target) {
  if (first % bytes_a_word == 0 && std::ssize(target) % bytes_a_word == 0)
    return read_bytes(files, name, shape, DType::i32, first / bytes_a_word, target);
  const std::int64_t begin = first / bytes_a_word;
  const std::int64_t end = (first + std::ssize(target) + bytes_a_word - 1) / bytes_a_word;
  std::vector<std::byte> words(static_cast<std::size_t>((end - begin) * bytes_a_word));
  read_bytes(files, name, shape, DType::i32, begin, words);
  std::memcpy(target.data(), words.data() + first % bytes_a_word, target.size());
}

/// Numbers with a sign -> the same, and half of all more.
void add_half(std::span<std::byte> bytes, int bits) {
  const auto half = static_cast<std::uint8_t>(1u << (bits - 1));
  for (std::byte& byte : bytes)
    byte = static_cast<std::byte>(std::to_integer<std::uint8_t>(byte) + half);
}

Shape words_of_codes(const model::Parameter& row) {
  return {row.shape[0], row.shape[1] / model::codes_a_word(row.packing)};
}

void read_codes_of_rows(const weights::ModelFiles& files, const model::Parameter& row,
                        std::int64_t first, std::span<std::byte> target) {
  if (is_in_words(row))
    return read_bytes_of_words(files, row.name + "_packed", words_of_codes(row), first, target);
  read_bytes(files, row.name, row.shape, DType::i8, first, target);
  add_half(target, row.packing.bits);
}

void read_scales_of_rows(const weights::ModelFiles& files, const model::Parameter& row,
                         std::int64_t first, std::span<std::byte> target) {
  const std::string name = scales_name_of_rows(row);
  const Shape shape = shape_of_groups(files, row, name);
  if (core::num_elements(shape) > 1 || row.shape[0] == 1)
    return read_finite(files, name, {"", DType::f32, shape}, first, target);
  float all = 0;
  read_finite(files, name, {"", DType::f32, shape}, 0, std::as_writable_bytes(std::span(&all, 1)));
  std::ranges::fill(std::span(reinterpret_cast<float*>(target.data()), target.size() / sizeof all),
                    all);
}

/// Zeros of several outputs are in a word, from its lowest bits on.
Shape words_of_zeros(const model::Parameter& row) {
  const std::int64_t codes = model::codes_a_word(row.packing);
  return {(row.shape[0] + codes - 1) / codes, groups_of(row)[1]};
}

void read_packed_zeros(const weights::ModelFiles& files, const model::Parameter& row,
                       std::int64_t first, std::span<std::byte> target) {
  const Shape shape = words_of_zeros(row);
  const std::int64_t groups = shape[1], codes = model::codes_a_word(row.packing);
  const std::int64_t bits = row.packing.bits, end = first + std::ssize(target);
  const std::int64_t begin_word = first / groups / codes;
  const std::int64_t end_word = ((end - 1) / groups) / codes + 1;
  std::vector<std::uint32_t> words(static_cast<std::size_t>((end_word - begin_word) * groups));
  read_bytes(files, zeros_name(row), shape, DType::i32, begin_word * groups,
             std::as_writable_bytes(std::span(words)));
  for (std::int64_t at = first; at < end; ++at) {
    const std::int64_t output = at / groups, group = at % groups;
    const std::uint32_t word =
        words[static_cast<std::size_t>((output / codes - begin_word) * groups + group)];
    target[static_cast<std::size_t>(at - first)] =
        static_cast<std::byte>(word >> bits * (output % codes) & ((1u << bits) - 1));
  }
}

void read_zeros_of_rows(const weights::ModelFiles& files, const model::Parameter& row,
                        std::int64_t first, std::span<std::byte> target) {
  const std::string name = zeros_name(row);
  if (target.empty()) return;
  if (files.entry(name).dtype == DType::i32) return read_packed_zeros(files, row, first, target);
  const Shape shape = shape_of_groups(files, row, name);
  const bool is_one = core::num_elements(shape) == 1;
  read_bytes(files, name, shape, DType::i8, is_one ? 0 : first, is_one ? target.first(1) : target);
  add_half(is_one ? target.first(1) : target, row.packing.bits);
  if (is_one) std::ranges::fill(target, target.front());
}

/// As scales are divided by it.
void read_nvfp4_factor(const weights::ModelFiles& files, const model::Parameter& row,
                       const std::string& name, std::span<std::byte> target) {
  const bool multiplies = row.packing.writer == Packing::Writer::modelopt;
  float factor = 0;
  read_finite(files, name, {"", DType::f32, files.entry(name).shape}, 0,
              std::as_writable_bytes(std::span(&factor, 1)));
  const float divisor = multiplies ? 1.0f / factor : factor;
  if (!(factor > 0) || !std::isfinite(divisor))
    refuse_rows(files, name, fmt::format("is {}", factor),
                fmt::format("all scales are {} it", multiplies ? "multiplied by" : "divided by"));
  std::memcpy(target.data(), &divisor, sizeof divisor);
}

void read_nvfp4_plane(const weights::ModelFiles& files, const model::Parameter& row, int i,
                      std::int64_t first, std::span<std::byte> target) {
  namespace at_plane = model::nvfp4_plane;
  const model::Plane plane = model::planes(row, DType::f32).at(static_cast<std::size_t>(i));
  const std::string name = row.name + plane.suffix;
  if (i == at_plane::codes) return read_bytes(files, name, plane.shape, DType::u8, first, target);
  if (i == at_plane::factor) return read_nvfp4_factor(files, row, name, target);
  read_bytes(files, name, plane.shape, DType::f8_e4m3, first, target);
  constexpr auto sign = std::byte{0x80}, nan = std::byte{0x7F};
  const auto found =
      std::ranges::find_if(target, [](std::byte code) { return (code & ~sign) == nan; });
  if (found != target.end())
    refuse_rows(files, name, fmt::format("is nan at element {}", first + (found - target.begin())),
                "a model has finite numbers only");
}

/// Codes of bitsandbytes may lie in the order of some GPU's products.
void require_row_major(const weights::ModelFiles& files, const std::string& name) {
  std::byte format{};
  read_bytes(files, name, files.entry(name).shape, DType::u8, 0, {&format, 1});
  if (std::to_integer<std::uint8_t>(format) != row_major)
    refuse_rows(files, name, fmt::format("is {}", std::to_integer<int>(format)),
                "codes in rows are read, which is 0");
}

void add_optional(const weights::ModelFiles& files, const std::string& name,
                  std::vector<weights::ExpectedTensor>& expected) {
  if (files.contains(name)) expected.push_back({name, files.entry(name).shape, true});
}

void add_expected_nvfp4(const model::Parameter& row,
                        std::vector<weights::ExpectedTensor>& expected) {
  for (const model::Plane& plane : model::planes(row, DType::f32))
    expected.push_back({row.name + plane.suffix, plane.shape});
  // ModelOpt's factor is a number, not a list of one.
  if (row.packing.writer == Packing::Writer::modelopt) expected.back().shape = {};
}

void add_expected_integers(const weights::ModelFiles& files, const model::Parameter& row,
                           std::vector<weights::ExpectedTensor>& expected) {
  // Which shapes these may have is said where they are read.
  const auto add_of_groups = [&](const std::string& name) {
    expected.push_back({name, files.contains(name) ? files.entry(name).shape : Shape{-1}});
  };
  if (is_in_words(row)) {
    expected.push_back({row.name + "_packed", words_of_codes(row)});
    add_optional(files, row.name + "_shape", expected);
  } else {
    expected.push_back({row.name, row.shape});
  }
  add_of_groups(scales_name_of_rows(row));
  if (row.packing.has_zeros) {
    add_of_groups(zeros_name(row));
  } else {
    add_optional(files, zeros_name(row), expected);
  }
  const std::string order = module_of_rows(row) + ".weight_format";
  if (!is_of_bitsandbytes(row) || !files.contains(order)) return;
  add_optional(files, order, expected);
  require_row_major(files, order);
}

}  // namespace

void add_expected_rows(const weights::ModelFiles& files, const model::Parameter& row,
                       std::vector<weights::ExpectedTensor>& expected) {
  if (row.packing.kind == Packing::Kind::nvfp4) {
    add_expected_nvfp4(row, expected);
  } else {
    add_expected_integers(files, row, expected);
  }
  const std::string module = module_of_rows(row);
  const std::string parent = module.substr(0, module.rfind('.'));
  for (const char* more : {".input_scale", ".input_zero_point", ".input_global_scale"})
    add_optional(files, module + more, expected);
  for (const std::string& place : {module, parent})
    for (const char* more : {".k_scale", ".v_scale"})
      add_optional(files, place + more, expected);
}

void read_rows_plane(const weights::ModelFiles& files, const model::Parameter& row, int plane,
                     std::int64_t first, std::span<std::byte> target) {
  namespace at_plane = model::integers_plane;
  if (row.packing.kind == Packing::Kind::nvfp4)
    return read_nvfp4_plane(files, row, plane, first, target);
  switch (plane) {
    case at_plane::codes:
      return read_codes_of_rows(files, row, first, target);
    case at_plane::scales:
      return read_scales_of_rows(files, row, first, target);
    default:
      return read_zeros_of_rows(files, row, first, target);
  }
}

}  // namespace finetune::base
