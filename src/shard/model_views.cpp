// SPDX-License-Identifier: Apache-2.0
// What readers see of units that are open: weights as they lie in what was gathered, and where
// gradients go.
#include <utility>

#include "core/error.hpp"
#include "model/packing.hpp"
#include "shard/model_shards.hpp"

namespace finetune::shard {
namespace {

at::Tensor plane_view(const at::Tensor& bytes, const plan::FrozenPlane& plane, std::int64_t count) {
  const at::Tensor part =
      bytes.narrow(0, plane.offset_bytes, count * core::size_bytes(plane.dtype));
  return plane.dtype == core::DType::u8 ? part : part.view(to_aten(plane.dtype));
}

}  // namespace

at::Tensor ModelShards::view(const at::Tensor& flat, model::RowRange rows) const {
  const std::vector<std::int64_t> shape = shape_of(rows);
  return flat.narrow(0, map_.offset_of(rows.first), core::num_elements(shape)).view(shape);
}

std::vector<std::int64_t> ModelShards::shape_of(model::RowRange rows) const {
  std::vector<std::int64_t> shape = table_.row(rows.first).shape;
  for (int row = rows.first + 1; row < rows.first + rows.num; ++row)
    shape[0] += table_.row(row).shape[0];
  return shape;
}

at::Tensor ModelShards::weight(model::RowRange rows) const {
  return model::unpacked(matrix(rows));
}

model::Weight ModelShards::matrix(model::RowRange rows) const {
  model::Weight weight = dense_or_packed(rows);
  weight.fp8 = fp8_of(rows);
  return weight;
}

std::optional<model::Fp8Recipe> ModelShards::fp8_of(model::RowRange rows) const {
  const auto& recipe = options_.numbers.fp8;
  return recipe && model::has_fp8_product(table_, rows, *recipe) ? recipe : std::nullopt;
}

model::Weight ModelShards::dense_or_packed(model::RowRange rows) const {
  if (!is_of_one_unit(rows)) return {joined(rows)};
  const int i_unit = map_.unit_of(rows.first);
  const Unit& unit = at(i_unit);
  core::check(unit.num_open > 0, "weights are read while their unit is open");
  wait_for(i_unit);
  if (!table_.row(rows.first).trainable) return frozen_matrix(unit.full, rows);
  if (!unit.fp8) return {view(unit.full, rows)};
  if (unit.fp8->has(rows))
    return {.quantised = unit.fp8->matrix(unit.full, rows), .compute = compute_dtype()};
  return {unit.fp8->others(rows).view(shape_of(rows))};
}

model::Weight ModelShards::frozen_matrix(const at::Tensor& bytes, model::RowRange rows) const {
  model::Weight weight{.dense = {}, .packed = {}, .compute = compute_dtype()};
  if ((weight.quantised = quantised_matrix(bytes, rows))) return weight;
  bool is_dense = true;
  std::int64_t count = 0;
  for (int i = rows.first; i < rows.first + rows.num; ++i) {
    const model::Parameter& row = table_.row(i);
    is_dense = is_dense && row.packing.is_dense();
    count += row.count();
    std::vector<at::Tensor> planes;
    for (const plan::FrozenPlane& plane : map_.planes_of(i))
      planes.push_back(plane_view(bytes, plane, plane.count));
    weight.packed.push_back({&row, std::move(planes)});
  }
  if (!is_dense) return weight;
  // Neighbours that are not packed lie in the unit as one.
  return {plane_view(bytes, map_.planes_of(rows.first).front(), count).view(shape_of(rows))};
}

std::optional<model::Quantised> ModelShards::quantised_matrix(const at::Tensor& bytes,
                                                              model::RowRange rows) const {
  namespace at_plane = model::fp8_plane;
  const model::Parameter& first = table_.row(rows.first);
  std::int64_t outputs = 0, scales = 0;
  std::vector<plan::FrozenPlane> begin;
  for (int i = rows.first; i < rows.first + rows.num; ++i) {
    if (!table_.row(i).packing.is_operand()) return std::nullopt;
    const std::vector<plan::FrozenPlane> planes = map_.planes_of(i);
    if (begin.empty()) begin = planes;
    // Parts of odd sizes have gaps between them.
    if (planes[at_plane::values].offset_bytes !=
        begin[at_plane::values].offset_bytes + outputs * first.shape[1])
      return std::nullopt;
    outputs += table_.row(i).shape[0];
    scales += planes[at_plane::scales].count;
  }
  const std::int64_t side = first.packing.group_size;
  return model::Quantised{plane_view(bytes, begin[at_plane::values], outputs * first.shape[1])
                              .view(at::kFloat8_e4m3fn)
                              .view({outputs, first.shape[1]}),
                          plane_view(bytes, begin[at_plane::scales], scales)
                              .view({-1, side == 0 ? 1 : first.shape[1] / side})};
}

/// In elements; 0: they do not lie at one distance, or are packed.
std::int64_t ModelShards::distance_of(const model::RowSeries& series) const {
  const int unit = map_.unit_of(series.first.first);
  const std::int64_t begin = map_.offset_of(series.first.first);
  std::int64_t distance = 0;
  for (std::int64_t i = 0; i < series.num; ++i) {
    const model::RowRange rows = series.at(i);
    for (int row = rows.first; row < rows.first + rows.num; ++row)
      if (map_.unit_of(row) != unit || !table_.row(row).packing.is_dense()) return 0;
    if (i == 0) distance = table_.row(rows.first).count() * rows.num;
    if (i == 1) distance = map_.offset_of(rows.first) - begin;
    if (i > 0 && map_.offset_of(rows.first) != begin + i * distance) return 0;
  }
  // Frozen rows are counted in bytes.
  const bool in_bytes = !map_.unit(unit).trainable && series.num > 1;
  return in_bytes ? distance / core::size_bytes(options_.numbers.compute) : distance;
}

at::Tensor ModelShards::view(const at::Tensor& flat, const model::RowSeries& series,
                             std::int64_t first_element) const {
  const std::int64_t columns = table_.row(series.first.first).shape.at(1);
  std::int64_t rows = 0;
  for (int row = series.first.first; row < series.first.first + series.first.num; ++row)
    rows += table_.row(row).shape.front();
  return flat.as_strided({series.num, rows, columns}, {distance_of(series), columns, 1},
                         flat.storage_offset() + first_element);
}

model::Weight ModelShards::series(const model::RowSeries& series) const {
  const int i_unit = map_.unit_of(series.first.first);
  const Unit& unit = at(i_unit);
  core::check(unit.num_open > 0, "weights are read while their unit is open");
  wait_for(i_unit);
  model::Weight weight{.compute = compute_dtype(), .fp8 = fp8_of(series.first)};
  if ((weight.quantised = quantised_series(unit, series))) return weight;
  // A unit in 8 bits has its other rows elsewhere, one by one.
  if (unit.fp8 || distance_of(series) == 0) return weight;
  const std::int64_t offset = map_.offset_of(series.first.first);
  if (map_.unit(i_unit).trainable) {
    weight.dense = view(unit.full, series, offset);
    return weight;
  }
  // From the first byte of the series on, so that planes of other dtypes before it do not matter.
  const std::int64_t element = core::size_bytes(options_.numbers.compute);
  const std::int64_t bytes = (unit.full.numel() - offset) / element * element;
  weight.dense = view(unit.full.narrow(0, offset, bytes).view(compute_dtype()), series, 0);
  return weight;
}

/// Rows of one unit that are all in 8 bits are laid out one after the other, so that what follows
/// the first two lies at their distance.
std::optional<model::Quantised> ModelShards::quantised_series(
    const Unit& unit, const model::RowSeries& series) const {
  const int i_unit = map_.unit_of(series.first.first);
  for (std::int64_t i = 0; i < series.num; ++i) {
    const model::RowRange rows = series.at(i);
    for (int row = rows.first; row < rows.first + rows.num; ++row) {
      const model::Parameter& of = table_.row(row);
      const model::Packing& packing = of.trainable ? of.published : of.packing;
      if (!packing.is_operand() || map_.unit_of(row) != i_unit) return std::nullopt;
    }
  }
  const auto one = [&](std::int64_t i) {
    return unit.fp8 ? unit.fp8->matrix(unit.full, series.at(i))
                    : quantised_matrix(unit.full, series.at(i));
  };
  std::optional<model::Quantised> first = one(0);
  if (!first) return first;
  const std::optional<model::Quantised> next = series.num > 1 ? one(1) : first;
  const auto all = [&](at::Tensor model::Quantised::*part) {
    const at::Tensor& of = (*first).*part;
    const std::int64_t distance = ((*next).*part).storage_offset() - of.storage_offset();
    return of.as_strided({series.num, of.size(0), of.size(1)},
                         {distance, of.stride(0), of.stride(1)}, of.storage_offset());
  };
  return model::Quantised{all(&model::Quantised::values), all(&model::Quantised::scales)};
}

bool ModelShards::has_series_gradient(const model::RowSeries& series) const {
  return table_.row(series.first.first).trainable && distance_of(series) != 0;
}

model::GradientSlot ModelShards::series_gradient(const model::RowSeries& series) {
  if (!table_.row(series.first.first).trainable) return {};
  const Unit& unit = at(map_.unit_of(series.first.first));
  core::check(unit.gradient_is_open, "gradients are written while their unit's gradient is open");
  std::vector<int> unwritten;
  for (std::int64_t i = 0; i < series.num; ++i) {
    for (int row = series.at(i).first; row < series.at(i).first + series.first.num; ++row) {
      char& is_written = written_[static_cast<std::size_t>(row)];
      if (is_written == 0) unwritten.push_back(row);
      is_written = 1;
    }
  }
  const bool accumulate = std::ssize(unwritten) < series.num * series.first.num;
  if (accumulate)
    for (const int row : unwritten)
      view(unit.full_gradient, {row, 1}).zero_();
  return {view(unit.full_gradient, series, map_.offset_of(series.first.first)), accumulate};
}

bool ModelShards::is_of_one_unit(model::RowRange rows) const {
  for (int i = rows.first + 1; i < rows.first + rows.num; ++i)
    if (unit_of(i) != unit_of(rows.first)) return false;
  return true;
}

at::Tensor ModelShards::joined(model::RowRange rows) const {
  std::vector<at::Tensor> parts;
  for (int i = rows.first; i < rows.first + rows.num; ++i)
    parts.push_back(weight({i, 1}));
  return at::cat(parts);
}

std::vector<model::TrainedPart> ModelShards::trained(model::RowRange rows) const {
  std::vector<model::TrainedPart> parts;
  std::int64_t first_output = 0;
  for (int i = rows.first; i < rows.first + rows.num; ++i) {
    const std::int64_t num_outputs = table_.row(i).shape.front();
    const bool is_next = !parts.empty() && parts.back().rows.first + parts.back().rows.num == i;
    if (table_.row(i).trainable && is_next) {
      ++parts.back().rows.num;
      parts.back().num_outputs += num_outputs;
    } else if (table_.row(i).trainable) {
      parts.push_back({{i, 1}, first_output, num_outputs});
    }
    first_output += num_outputs;
  }
  return parts;
}

std::vector<model::AdaptedPart> ModelShards::adapted(model::RowRange rows) const {
  std::vector<model::AdaptedPart> parts;
  std::int64_t first_output = 0;
  for (int i = rows.first; i < rows.first + rows.num; ++i) {
    const model::Parameter& row = table_.row(i);
    const std::int64_t num_outputs = row.shape.front();
    if (row.adapted.exists()) parts.push_back({i, &row.adapted, first_output, num_outputs});
    first_output += num_outputs;
  }
  return parts;
}

model::GradientSlot ModelShards::gradient(model::RowRange rows) {
  if (!table_.rows[static_cast<std::size_t>(rows.first)].trainable) return {};
  const Unit& unit = at(map_.unit_of(rows.first));
  core::check(unit.gradient_is_open, "gradients are written while their unit's gradient is open");
  const bool accumulate = written_[static_cast<std::size_t>(rows.first)] != 0;
  for (int row = rows.first; row < rows.first + rows.num; ++row)
    written_[static_cast<std::size_t>(row)] = 1;
  return {view(unit.full_gradient, rows), accumulate};
}

}  // namespace finetune::shard
