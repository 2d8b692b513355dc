// SPDX-License-Identifier: Apache-2.0
#include "base/detail/unpacked_values.hpp"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/detail/plane_parts.hpp"
#include "base/packed_files.hpp"
#include "model/packing.hpp"
#include "model/weight.hpp"
#include "shard/options.hpp"

namespace finetune::base {
namespace {

/// Elements that are in memory as fp32 at once.
constexpr std::int64_t band_elements = std::int64_t{4} << 20;

/// Rows [first, first + num) of a matrix of files, as a rank that shares it would hold them.
model::Parameter band_of(const model::Parameter& whole, std::int64_t first, std::int64_t num) {
  model::Parameter band = whole;
  band.shape[0] = num;
  band.held = model::Part{
      .shape = whole.shape, .boxes = {{{first, 0}, band.shape}}, .nests = whole.packing.nests};
  return band;
}

std::vector<float> band_values(const weights::ModelFiles& files, const model::Parameter& whole,
                               std::int64_t first, std::int64_t num) {
  const model::Parameter band = band_of(whole, first, num);
  std::vector<std::vector<std::byte>> planes;
  for (const model::Plane& plane : model::planes(band, core::DType::f32)) {
    const auto i = static_cast<int>(planes.size());
    planes.emplace_back(static_cast<std::size_t>(plane.size_bytes()));
    read_own_plane(band, i, 0, planes.back(),
                   [&](int of, std::int64_t begin, std::span<std::byte> target) {
                     read_plane(files, whole, of, begin, target);
                   });
  }
  return numbers_of_planes(band, planes);
}

}  // namespace

model::Parameter as_in_files(const model::Parameter& row) {
  model::Parameter whole = row;
  if (!row.of_files.is_dense()) whole.packing = row.of_files;
  return whole;
}

std::vector<float> numbers_of_planes(const model::Parameter& row,
                                     std::span<const std::vector<std::byte>> planes) {
  model::MatrixPlanes matrix{.row = &row, .planes = {}};
  const auto kinds = model::planes(row, core::DType::f32);
  for (std::size_t i = 0; i < planes.size(); ++i)
    matrix.planes.push_back(at::from_blob(const_cast<std::byte*>(planes[i].data()),  // read only
                                          {kinds[i].count()}, shard::to_aten(kinds[i].dtype)));
  const at::Tensor unpacked =
      model::unpacked({.packed = {std::move(matrix)}, .compute = at::kFloat});
  std::vector<float> values(static_cast<std::size_t>(row.count()));
  at::from_blob(values.data(), row.shape, at::kFloat).copy_(unpacked);
  return values;
}

void read_unpacked(const weights::ModelFiles& files, const model::Parameter& row,
                   std::int64_t first, std::span<float> target) {
  if (target.empty()) return;
  const model::Parameter whole = as_in_files(row);
  const std::int64_t rows = whole.shape[0], columns = whole.shape[1];
  const std::int64_t together = model::elements_together(whole.packing);
  const std::int64_t step =
      std::max<std::int64_t>(1, band_elements / (columns * together)) * together;
  const std::int64_t end = first + std::ssize(target);
  for (std::int64_t row_at = first / columns / together * together; row_at * columns < end;
       row_at += step) {
    const std::vector<float> values =
        band_values(files, whole, row_at, std::min(step, rows - row_at));
    const std::int64_t begin = row_at * columns;
    const std::int64_t from = std::max(begin, first);
    const std::int64_t to = std::min(begin + std::ssize(values), end);
    std::copy(values.begin() + (from - begin), values.begin() + (to - begin),
              target.begin() + (from - first));
  }
}

}  // namespace finetune::base
