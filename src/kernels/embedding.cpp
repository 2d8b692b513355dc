// SPDX-License-Identifier: Apache-2.0
#include "kernels/embedding.hpp"

#include <numeric>

#include "core/error.hpp"
#include "kernels/arithmetic.hpp"
#include "kernels/launch.hpp"

namespace finetune::kernels {
namespace {

template <class T>
struct Gather {
  const T* weight;
  const std::int64_t* ids;
  T* y;
  std::int64_t dim;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t first, std::int64_t last) const {
    for (std::int64_t n = first; n < last; ++n) {
      const T* row = weight + ids[n] * dim;
      T* out = y + n * dim;
#pragma GCC ivdep
      for (std::int64_t j = 0; j < dim; ++j)
        out[j] = row[j];
    }
  }
};

// Columns that are summed together, in registers or the first cache.
constexpr std::int64_t tile_size = 64;

// A thread owns tiles of columns, so no two threads write the same element, and a frequent id
// does not make one thread's work longer.
template <class T, class Gradient>
struct ScatterAdd {
  const T* dy;
  const std::int64_t* ids;
  const std::int64_t* order;  // positions sorted by id, then by position
  Gradient* dweight;
  std::int64_t count, dim;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t first, std::int64_t last) const {
    for (std::int64_t tile = first; tile < last; ++tile) {
      const std::int64_t column = tile * tile_size;
      const std::int64_t left = dim - column;
      for (std::int64_t i = 0; i < count;) {
        i = add_group(i, column, left < tile_size ? left : tile_size);
      }
    }
  }

  /// Adds the gradients of the id at order[begin] and returns where the next id begins.
  KOKKOS_INLINE_FUNCTION std::int64_t add_group(std::int64_t begin, std::int64_t column,
                                                std::int64_t width) const {
    const std::int64_t id = ids[order[begin]];
    Gradient* target = dweight + id * dim + column;
    float sums[tile_size];
    for (std::int64_t j = 0; j < width; ++j)
      sums[j] = to_float(target[j]);
    std::int64_t i = begin;
    for (; i < count && ids[order[i]] == id; ++i) {
      const T* row = dy + order[i] * dim + column;
      for (std::int64_t j = 0; j < width; ++j)
        sums[j] += to_float(row[j]);
    }
    for (std::int64_t j = 0; j < width; ++j)
      target[j] = round_to<Gradient>(sums[j]);
    return i;
  }
};

void check_sizes(std::size_t weight, std::size_t rows, std::span<const std::int64_t> ids,
                 std::int64_t dim) {
  core::check(dim > 0 && weight % static_cast<std::size_t>(dim) == 0,
              "embedding: weight is [V, D]");
  core::check(rows == ids.size() * static_cast<std::size_t>(dim), "embedding: rows are [N, D]");
}

void check_ids(std::span<const std::int64_t> ids, std::int64_t vocabulary) {
  bool inside = true;
  for (const std::int64_t id : ids)
    inside &= id >= 0 && id < vocabulary;
  core::check(inside, "embedding: every id lies in the vocabulary");
}

}  // namespace

template <class T>
void embedding(std::span<const T> weight, std::span<const std::int64_t> ids, std::int64_t dim,
               std::span<T> y) {
  check_sizes(weight.size(), y.size(), ids, dim);
  if (!on_device()) check_ids(ids, static_cast<std::int64_t>(weight.size()) / dim);
  launch(0, static_cast<std::int64_t>(ids.size()), grain_rows(dim),
         Gather<T>{weight.data(), ids.data(), y.data(), dim});
}

template <class T, class Gradient>
void embedding_backward(std::span<const T> dy, std::span<const std::int64_t> ids, std::int64_t dim,
                        std::span<Gradient> dweight) {
  check_sizes(dweight.size(), dy.size(), ids, dim);
  check_ids(ids, static_cast<std::int64_t>(dweight.size()) / dim);
  const auto count = static_cast<std::int64_t>(ids.size());
  const Scratch<std::int64_t> order(count), device_ids(count);
  std::iota(order.data(), order.data() + count, std::int64_t{0});
  std::stable_sort(order.data(), order.data() + count,
                   [&](std::int64_t a, std::int64_t b) { return ids[a] < ids[b]; });
  std::copy(ids.begin(), ids.end(), device_ids.data());
  const std::int64_t tiles = (dim + tile_size - 1) / tile_size;
  launch(0, tiles, std::max<std::int64_t>(1, grain_elements / (tile_size * (count + 1))),
         ScatterAdd<T, Gradient>{dy.data(), device_ids.data(), order.data(), dweight.data(), count,
                                 dim});
}

template void embedding(std::span<const float>, std::span<const std::int64_t>, std::int64_t,
                        std::span<float>);
template void embedding(std::span<const bf16>, std::span<const std::int64_t>, std::int64_t,
                        std::span<bf16>);
template void embedding_backward(std::span<const float>, std::span<const std::int64_t>,
                                 std::int64_t, std::span<float>);
template void embedding_backward(std::span<const float>, std::span<const std::int64_t>,
                                 std::int64_t, std::span<bf16>);
template void embedding_backward(std::span<const bf16>, std::span<const std::int64_t>, std::int64_t,
                                 std::span<float>);
template void embedding_backward(std::span<const bf16>, std::span<const std::int64_t>, std::int64_t,
                                 std::span<bf16>);

}  // namespace finetune::kernels
