// SPDX-License-Identifier: Apache-2.0
#include "model/fp8_runs.hpp"

#include <algorithm>
#include <limits>

namespace finetune::model {
namespace {

/// Columns [column, column + width) of rows [row, row + height): whole rows, or a part of one.
struct Rectangle {
  std::int64_t offset;  ///< of its first element within the run
  std::int64_t row, column, height, width;
};

/// Calls f with the part of a row that a run begins with, its whole rows, and the part of a row
/// that it ends with, as far as there are any.
template <typename F>
void for_each_rectangle(const MatrixRun& run, const F& f) {
  const std::int64_t columns = run.columns;
  const std::int64_t end = run.first + run.elements.numel();
  std::int64_t at = run.first;
  const auto take = [&](std::int64_t height, std::int64_t width) {
    if (height * width == 0) return;
    f(Rectangle{at - run.first, at / columns, at % columns, height, width});
    at += height * width;
  };
  if (at % columns != 0) take(1, std::min(columns - at % columns, end - at));
  take((end - at) / columns, columns);
  take(1, end - at);
}

std::int64_t multiple_below(std::int64_t value, std::int64_t multiple) {
  return value / multiple * multiple;
}

std::int64_t multiple_above(std::int64_t value, std::int64_t multiple) {
  return multiple_below(value + multiple - 1, multiple);
}

/// The tiles that a rectangle is in: `grid` is [F / rows, D / columns].
at::Tensor tiles_of(const Rectangle& at, const Tile& tile, const at::Tensor& grid) {
  const std::int64_t top = at.row / tile.rows, left = at.column / tile.columns;
  const std::int64_t bottom = multiple_above(at.row + at.height, tile.rows) / tile.rows;
  const std::int64_t right = multiple_above(at.column + at.width, tile.columns) / tile.columns;
  return grid.narrow(0, top, bottom - top).narrow(1, left, right - left);
}

/// x [height, width] with zeros around it, so that it consists of whole tiles.
at::Tensor padded_to_tiles(const at::Tensor& x, const Rectangle& at, const Tile& tile) {
  const std::int64_t left = at.column % tile.columns, top = at.row % tile.rows;
  const std::int64_t right =
      multiple_above(at.column + at.width, tile.columns) - at.column - at.width;
  const std::int64_t bottom = multiple_above(at.row + at.height, tile.rows) - at.row - at.height;
  if (left + right + top + bottom == 0) return x;
  return at::constant_pad_nd(x, {left, right, top, bottom}, 0);
}

/// Along the last dim, fp32. On a GPU in one pass; on the CPU that would read a copy in fp32.
at::Tensor largest_along_last(const at::Tensor& x) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (x.is_cpu()) return x.abs().amax(-1).to(at::kFloat);
  return at::linalg_vector_norm(x, infinity, {-1}, /*keepdim=*/false, at::kFloat);
}

Tile settled(const MatrixRun& run, const Tile& tile) {
  return {tile.rows, tile.columns == 0 ? run.columns : tile.columns};
}

}  // namespace

void raise_largest(const MatrixRun& run, const Tile& wanted, const at::Tensor& largest) {
  const Tile tile = settled(run, wanted);
  for_each_rectangle(run, [&](const Rectangle& at) {
    const at::Tensor x =
        run.elements.narrow(0, at.offset, at.height * at.width).view({at.height, at.width});
    // Along a row first: what is padded to whole rows of tiles is small then.
    const Tile of_row{1, tile.columns};
    const at::Tensor whole = padded_to_tiles(x, at, of_row).unflatten(1, {-1, tile.columns});
    const at::Tensor of_rows = largest_along_last(whole);
    const Rectangle bands{0, at.row, 0, at.height, of_rows.size(1)};
    const at::Tensor found =
        padded_to_tiles(of_rows, bands, {tile.rows, 1}).unflatten(0, {-1, tile.rows}).amax(1);
    at::Tensor target = tiles_of(at, tile, largest);
    at::maximum_out(target, target, found);
  });
}

void quantise_run(const MatrixRun& run, const Tile& wanted, const at::Tensor& scales,
                  at::Tensor values) {
  const Tile tile = settled(run, wanted);
  for_each_rectangle(run, [&](const Rectangle& at) {
    const std::int64_t count = at.height * at.width;
    const at::Tensor x = run.elements.narrow(0, at.offset, count);
    at::Tensor target = values.narrow(0, at.offset, count);
    at::Tensor of = tiles_of(at, tile, scales).to(x.scalar_type());
    if (tile.rows > 1)
      of = of.repeat_interleave(tile.rows, 0).narrow(0, at.row % tile.rows, at.height);
    if (at.width == run.columns) {
      at::Tensor in_tiles = target.view({at.height, -1, tile.columns});
      at::div_out(in_tiles, x.view({at.height, -1, tile.columns}), of.unsqueeze(2));
      return;
    }
    const at::Tensor of_elements =
        of.repeat_interleave(tile.columns, 1).narrow(1, at.column % tile.columns, at.width);
    at::div_out(target, x, of_elements.view({-1}));
  });
}

}  // namespace finetune::model
