// SPDX-License-Identifier: Apache-2.0
#include "base/detail/plane_parts.hpp"

#include <algorithm>
#include <vector>

#include "core/dtype.hpp"
#include "core/error.hpp"
#include "kernels/nf4.hpp"
#include "kernels/row_codes.hpp"
#include "model/packing.hpp"
#include "model/part.hpp"

namespace finetune::base {
namespace {

using model::Packing;
using Runs = std::function<void(std::int64_t logical, std::int64_t count)>;

bool is_gptq(const model::Parameter& row) {
  return row.packing.kind == Packing::Kind::gptq;
}

bool is_fp8(const model::Parameter& row) {
  return row.packing.kind == Packing::Kind::fp8;
}

bool is_mxfp4(const model::Parameter& row) {
  return row.packing.kind == Packing::Kind::mxfp4;
}

bool is_integers(const model::Parameter& row) {
  return row.packing.kind == Packing::Kind::integers;
}

bool is_nvfp4(const model::Parameter& row) {
  return row.packing.kind == Packing::Kind::nvfp4;
}

const core::Box& only_box(const model::Parameter& row) {
  core::check(row.held->boxes.size() == 1, "a packed matrix is held as one box");
  return row.held->boxes.front();
}

/// Runs of elements of a plane that has one for each `size` elements of the tensor.
void for_each_run_of(const model::Parameter& row, std::int64_t size, std::int64_t first,
                     std::int64_t count, const Runs& f) {
  const std::int64_t begin = first * size;
  model::for_each_run(row, begin, std::min(count * size, row.count() - begin),
                      [&](std::int64_t logical, std::int64_t elements) {
                        core::check(logical % size == 0, "what is packed together is not cut");
                        f(logical / size, (elements + size - 1) / size);
                      });
}

void for_each_nf4_run(const model::Parameter& row, int plane, std::int64_t first,
                      std::int64_t count, const Runs& f) {
  namespace at = model::nf4_plane;
  switch (plane) {
    case at::codes:
      return for_each_run_of(row, 2, first, count, f);
    case at::maxima:
      return for_each_run_of(row, kernels::nf4_block, first, count, f);
    case at::nested_maxima:
      return for_each_run_of(row, kernels::nf4_block * kernels::nested_block, first, count, f);
    default:
      return f(first, count);
  }
}

/// A plane of a GPTQ layer has inputs, or words or groups of them, by outputs, or words of them.
void for_each_gptq_run(const model::Parameter& row, int plane, std::int64_t first,
                       std::int64_t count, const Runs& f) {
  namespace at = model::gptq_plane;
  const core::Box& box = only_box(row);
  const std::int64_t out = box.begin[0], in = box.begin[1];
  if (plane == at::groups) return f(in + first, count);
  const std::int64_t a_word = model::codes_a_word(row.packing);
  const std::int64_t a_column = plane == at::zeros ? a_word : 1;
  const std::int64_t columns = box.extent[0] / a_column;
  const std::int64_t all_columns = row.held->shape[0] / a_column;
  const std::int64_t first_row = plane == at::codes ? in / a_word : 0;
  while (count > 0) {
    const std::int64_t i = first / columns, j = first % columns;
    const std::int64_t size = std::min(count, columns - j);
    f((first_row + i) * all_columns + out / a_column + j, size);
    first += size;
    count -= size;
  }
}

/// What has an element for each tile of `rows` rows and `columns` columns of a matrix; 0: of all
/// columns.
void for_each_tile_run(const model::Parameter& row, std::int64_t rows, std::int64_t columns,
                       std::int64_t first, std::int64_t count, const Runs& f) {
  const std::int64_t inputs = row.shape[1], all_inputs = row.held->shape[1];
  const auto tiles = [columns](std::int64_t size) {
    return columns == 0 ? 1 : (size + columns - 1) / columns;
  };
  const std::int64_t across = tiles(inputs), all_across = tiles(all_inputs);
  while (count > 0) {
    const std::int64_t i = first / across, j = first % across;
    const std::int64_t size = std::min(count, across - j);
    model::for_each_run(
        row, i * rows * inputs + j * columns, 1, [&](std::int64_t logical, std::int64_t) {
          const std::int64_t in = logical % all_inputs;
          f(logical / all_inputs / rows * all_across + (columns == 0 ? 0 : in / columns), size);
        });
    first += size;
    count -= size;
  }
}

/// Scales of a matrix in 8 bits are of rows, or of blocks of as many rows as columns.
void for_each_fp8_run(const model::Parameter& row, int plane, std::int64_t first,
                      std::int64_t count, const Runs& f) {
  if (plane == model::fp8_plane::values) return model::for_each_run(row, first, count, f);
  const std::int64_t side = row.packing.group_size;
  for_each_tile_run(row, std::max<std::int64_t>(1, side), side, first, count, f);
}

void for_each_integers_run(const model::Parameter& row, int plane, std::int64_t first,
                           std::int64_t count, const Runs& f) {
  if (plane == model::integers_plane::codes)
    return for_each_run_of(row, 8 / row.packing.bits, first, count, f);
  for_each_tile_run(row, 1, row.packing.group_size, first, count, f);
}

void for_each_nvfp4_run(const model::Parameter& row, int plane, std::int64_t first,
                        std::int64_t count, const Runs& f) {
  namespace at = model::nvfp4_plane;
  if (plane == at::factor) return f(first, count);
  for_each_run_of(row, plane == at::codes ? 2 : kernels::nvfp4_block, first, count, f);
}

/// Of all experts of a layer a rank has some, whole.
void for_each_mxfp4_run(const model::Parameter& row, int plane, std::int64_t first,
                        std::int64_t count, const Runs& f) {
  const model::Plane own = model::planes(row, core::DType::f32).at(static_cast<std::size_t>(plane));
  f(only_box(row).begin[0] * (own.count() / row.shape[0]) + first, count);
}

/// Maxima of blocks of a tensor that has them nested, in fp32.
void read_denested(const model::Parameter& row, std::int64_t first, std::span<float> target,
                   const ReadPlane& logical) {
  namespace at = model::nf4_plane;
  float offset = 0;
  logical(at::offset, 0, std::as_writable_bytes(std::span(&offset, 1)));
  const auto levels = kernels::nested_levels();
  std::vector<std::uint8_t> codes;
  std::vector<float> nested;
  for_each_run_of(row, kernels::nf4_block, first, std::ssize(target),
                  [&](std::int64_t block, std::int64_t count) {
                    const std::int64_t begin = block / kernels::nested_block;
                    const std::int64_t end = (block + count - 1) / kernels::nested_block + 1;
                    codes.resize(static_cast<std::size_t>(count));
                    nested.resize(static_cast<std::size_t>(end - begin));
                    logical(at::maxima, block, std::as_writable_bytes(std::span(codes)));
                    logical(at::nested_maxima, begin, std::as_writable_bytes(std::span(nested)));
                    for (std::int64_t i = 0; i < count; ++i) {
                      const auto of =
                          static_cast<std::size_t>((block + i) / kernels::nested_block - begin);
                      target[static_cast<std::size_t>(i)] =
                          levels[codes[static_cast<std::size_t>(i)]] * nested[of] + offset;
                    }
                    target = target.subspan(static_cast<std::size_t>(count));
                  });
}

}  // namespace

bool keeps_maxima(const model::Parameter& row) {
  return !row.held || row.packing.nests == row.held->nests;
}

void for_each_plane_run(const model::Parameter& row, int plane, std::int64_t first,
                        std::int64_t count, const Runs& f) {
  if (count == 0) return;
  if (!row.held) return f(first, count);
  if (row.packing.is_dense()) return model::for_each_run(row, first, count, f);
  if (is_gptq(row)) return for_each_gptq_run(row, plane, first, count, f);
  if (is_fp8(row)) return for_each_fp8_run(row, plane, first, count, f);
  if (is_mxfp4(row)) return for_each_mxfp4_run(row, plane, first, count, f);
  if (is_integers(row)) return for_each_integers_run(row, plane, first, count, f);
  if (is_nvfp4(row)) return for_each_nvfp4_run(row, plane, first, count, f);
  core::check(plane != model::nf4_plane::maxima || keeps_maxima(row),
              "maxima are those of the logical tensor");
  for_each_nf4_run(row, plane, first, count, f);
}

bool is_counted(const model::Parameter& row, int plane) {
  if (!row.held) return true;
  if (row.held->holder > 0) return false;
  if (row.packing.is_dense() || is_mxfp4(row)) return true;
  if (is_fp8(row) || is_integers(row)) {
    // Of rows that ranks share each has the scale; they have the columns in order.
    const bool is_of_rows = plane != model::fp8_plane::values && row.packing.group_size == 0;
    return !is_of_rows || row.held->boxes.empty() || row.held->boxes.front().begin[1] == 0;
  }
  if (is_nvfp4(row) && plane != model::nvfp4_plane::factor) return true;
  const core::Box& box = only_box(row);
  const bool is_of_all = is_nvfp4(row) || plane == model::nf4_plane::offset;
  if (!is_gptq(row)) return !is_of_all || (box.begin[0] == 0 && box.begin[1] == 0);
  // Along its inputs a matrix is cut but for zeros and scales, along its outputs but for groups.
  namespace at = model::gptq_plane;
  if (plane == at::codes) return true;
  return plane == at::groups ? box.begin[0] == 0 : box.begin[1] == 0;
}

void read_own_plane(const model::Parameter& row, int plane, std::int64_t first,
                    std::span<std::byte> target, const ReadPlane& logical) {
  const bool is_maxima =
      row.packing.kind == Packing::Kind::nf4 && plane == model::nf4_plane::maxima;
  if (is_maxima && !keeps_maxima(row))
    return read_denested(row, first,
                         {reinterpret_cast<float*>(target.data()), target.size() / sizeof(float)},
                         logical);
  const model::Plane own = model::planes(row, core::DType::f32).at(static_cast<std::size_t>(plane));
  const auto size = static_cast<std::size_t>(core::size_bytes(own.dtype));
  for_each_plane_run(row, plane, first, static_cast<std::int64_t>(target.size() / size),
                     [&](std::int64_t from, std::int64_t count) {
                       const auto bytes = static_cast<std::size_t>(count) * size;
                       logical(plane, from, target.first(bytes));
                       target = target.subspan(bytes);
                     });
}

}  // namespace finetune::base
