// SPDX-License-Identifier: Apache-2.0
#include "base/mxfp4_files.hpp"

#include <fmt/format.h>

#include <ATen/Parallel.h>

#include <algorithm>
#include <string>

#include "core/error.hpp"
#include "kernels/mxfp4.hpp"
#include "model/packing.hpp"

namespace finetune::base {
namespace {

/// Inputs of an expert with one exponent.
constexpr std::int64_t mxfp4_inputs = kernels::mxfp4_block;

/// The same row as the files have it.
model::Parameter as_mxfp4(model::Parameter row) {
  row.packing = {.kind = model::Packing::Kind::mxfp4, .in_files = true, .nests = false};
  return row;
}

void require_readable(const weights::ModelFiles& files, const model::Parameter& row) {
  const std::string why = model::why_not_packed(row, as_mxfp4(row).packing);
  if (why.empty()) return;
  core::fail(core::ErrorKind::input, {files.folder().string(), row.name + " is in MXFP4", why,
                                      "Use the files the model was published with."});
}

void require_finite_exponents(const weights::ModelFiles& files, const std::string& name,
                              std::int64_t first, std::span<const std::byte> exponents) {
  const auto found = std::ranges::find_if(exponents, [](std::byte exponent) {
    return std::to_integer<std::uint8_t>(exponent) > kernels::largest_mxfp4_exponent;
  });
  if (found == exponents.end()) return;
  core::fail(core::ErrorKind::input,
             {files.folder().string(),
              fmt::format("{} has the exponent {} at element {}", name,
                          std::to_integer<int>(*found), first + (found - exponents.begin())),
              "its numbers are not all finite", "Use the files the model was published with."});
}

}  // namespace

bool is_mxfp4_in(const weights::ModelFiles& files, const model::Parameter& row) {
  return row.role == model::Role::expert && row.shape.size() == 3 && !files.contains(row.name) &&
         files.contains(row.name + "_blocks");
}

void add_expected_mxfp4(const weights::ModelFiles& files, const model::Parameter& row,
                        std::vector<weights::ExpectedTensor>& expected) {
  require_readable(files, row);
  for (const model::Plane& plane : model::planes(as_mxfp4(row), core::DType::f32))
    expected.push_back({.name = row.name + plane.suffix, .shape = plane.shape, .optional = false});
}

void read_mxfp4_plane(const weights::ModelFiles& files, const model::Parameter& row, int i,
                      std::int64_t first, std::span<std::byte> target) {
  const model::Plane plane =
      model::planes(as_mxfp4(row), core::DType::f32).at(static_cast<std::size_t>(i));
  const std::string name = row.name + plane.suffix;
  files.read({.name = name,
              .shape = plane.shape,
              .dtype = plane.dtype,
              .offset = first,
              .count = std::ssize(target)},
             target);
  if (i == model::mxfp4_plane::scales) require_finite_exponents(files, name, first, target);
}

/// The one that was read last.
struct Mxfp4Reader::Expert {
  std::string name;
  std::int64_t number = -1;
  std::vector<std::byte> codes, exponents;

  void read(const weights::ModelFiles& files, const model::Parameter& row, std::int64_t i) {
    if (name == row.name && number == i) return;
    number = -1;
    const std::int64_t count = row.shape[1] * row.shape[2];
    codes.resize(static_cast<std::size_t>(count / 2));
    exponents.resize(static_cast<std::size_t>(count / mxfp4_inputs));
    read_mxfp4_plane(files, row, model::mxfp4_plane::codes, i * count / 2, codes);
    read_mxfp4_plane(files, row, model::mxfp4_plane::scales, i * count / mxfp4_inputs, exponents);
    name = row.name;
    number = i;
  }

  /// Elements [first, ...) of it, [in, out].
  void write(const model::Parameter& row, std::int64_t first, std::span<float> target) const {
    const std::int64_t inputs = row.shape[1], outputs = row.shape[2],
                       blocks = inputs / mxfp4_inputs;
    const std::int64_t last = first + std::ssize(target);
    const std::int64_t first_block = first / outputs / mxfp4_inputs;
    const std::int64_t end_block =
        ((last + outputs - 1) / outputs + mxfp4_inputs - 1) / mxfp4_inputs;
    at::parallel_for(first_block, end_block, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t b = begin; b < end; ++b)
        for (std::int64_t output = 0; output < outputs; ++output)
          write_block(output * blocks + b, b * mxfp4_inputs * outputs + output, outputs, first,
                      target);
    });
  }

 private:
  /// Block `i` of the codes, whose numbers go to elements at, at + stride, ...
  void write_block(std::int64_t i, std::int64_t at, std::int64_t stride, std::int64_t first,
                   std::span<float> target) const {
    const float scale =
        kernels::mxfp4_scale(std::to_integer<std::uint8_t>(exponents[static_cast<std::size_t>(i)]));
    const std::byte* bytes = codes.data() + i * (mxfp4_inputs / 2);
    for (std::int64_t k = 0; k < mxfp4_inputs; ++k) {
      const std::int64_t to = at + k * stride - first;
      if (to < 0 || to >= std::ssize(target)) continue;
      const auto byte = std::to_integer<std::size_t>(bytes[k / 2]);
      target[static_cast<std::size_t>(to)] =
          kernels::mxfp4_levels[k % 2 == 0 ? byte & 15 : byte >> 4] * scale;
    }
  }
};

Mxfp4Reader::Mxfp4Reader(const weights::ModelFiles& files)
    : files_(files), expert_(std::make_unique<Expert>()) {}

Mxfp4Reader::~Mxfp4Reader() = default;

void Mxfp4Reader::read(const model::Parameter& row, std::int64_t first, std::span<float> target) {
  require_readable(files_, row);
  const std::int64_t count = row.shape[1] * row.shape[2];
  while (!target.empty()) {
    const std::int64_t within = first % count;
    const auto size = std::min<std::int64_t>(std::ssize(target), count - within);
    expert_->read(files_, row, first / count);
    expert_->write(row, within, target.first(static_cast<std::size_t>(size)));
    target = target.subspan(static_cast<std::size_t>(size));
    first += size;
  }
}

}  // namespace finetune::base
