// SPDX-License-Identifier: Apache-2.0
#include "kernels/embedding.hpp"

#include <algorithm>
#include <iterator>
#include <numeric>

#include "core/error.hpp"
#include "kernels/detail/arithmetic.hpp"
#include "kernels/detail/launch.hpp"
#include "kernels/detail/scratch.hpp"

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

// Columns that are summed together, in the first cache.
constexpr std::int64_t tile_size = 256;

// Works on places of the order. A group of equal ids belongs to the thread that has its first
// place, so no two threads write the same row.
template <class T, class Gradient>
struct ScatterAdd {
  const T* dy;
  const std::int64_t* ids;    // sorted
  const std::int64_t* order;  // where in dy each of them was
  Gradient* dweight;
  std::int64_t count, dim;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t first, std::int64_t last) const {
    std::int64_t begin = first;
    while (begin > 0 && begin < last && ids[begin] == ids[begin - 1])
      ++begin;
    while (begin < last) {
      std::int64_t end = begin + 1;
      while (end < count && ids[end] == ids[begin])
        ++end;
      for (std::int64_t column = 0; column < dim; column += tile_size) {
        add_group(begin, end, column, dim - column < tile_size ? dim - column : tile_size);
      }
      begin = end;
    }
  }

  KOKKOS_INLINE_FUNCTION void add_group(std::int64_t begin, std::int64_t end, std::int64_t column,
                                        std::int64_t width) const {
    Gradient* target = dweight + ids[begin] * dim + column;
    float sums[tile_size];
    for (std::int64_t j = 0; j < width; ++j)
      sums[j] = to_float(target[j]);
    for (std::int64_t i = begin; i < end; ++i) {
      const T* row = dy + order[i] * dim + column;
      for (std::int64_t j = 0; j < width; ++j)
        sums[j] += to_float(row[j]);
    }
    for (std::int64_t j = 0; j < width; ++j)
      target[j] = round_to<Gradient>(sums[j]);
  }
};

/// A column of a group, by a thread of a GPU; those of places that are not their group's first have
/// nothing to do.
template <class T, class Gradient>
struct AddColumn {
  ScatterAdd<T, Gradient> to;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t index) const {
    const std::int64_t begin = index / to.dim, column = index % to.dim;
    const std::int64_t id = to.ids[begin];
    if (begin > 0 && id == to.ids[begin - 1]) return;
    Gradient& target = to.dweight[id * to.dim + column];
    float sum = to_float(target);
    for (std::int64_t i = begin; i < to.count && to.ids[i] == id; ++i)
      sum += to_float(to.dy[to.order[i] * to.dim + column]);
    target = round_to<Gradient>(sum);
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
  check_ids(ids, static_cast<std::int64_t>(weight.size()) / dim);
  launch(static_cast<std::int64_t>(ids.size()), grain_rows(dim),
         Gather<T>{weight.data(), ids.data(), y.data(), dim});
}

template <class T, class Gradient>
void embedding_backward_sorted(std::span<const T> dy, std::span<const std::int64_t> ids,
                               std::span<const std::int64_t> order, std::int64_t dim,
                               std::span<Gradient> dweight, const Place& place) {
  check_sizes(dweight.size(), dy.size(), ids, dim);
  core::check(order.size() == ids.size(), "embedding: as many places as ids");
  const std::int64_t count = std::ssize(ids);
  if (!place.is_gpu() && count > 0)
    core::check(ids.front() >= 0 && ids.back() < static_cast<std::int64_t>(dweight.size()) / dim,
                "embedding: every id lies in the vocabulary");
  const ScatterAdd<T, Gradient> add{dy.data(),      ids.data(), order.data(),
                                    dweight.data(), count,      dim};
  launch(place, count, grain_rows(dim), add, Threads<AddColumn<T, Gradient>>{count * dim, {add}});
}

template <class T, class Gradient>
void embedding_backward(std::span<const T> dy, std::span<const std::int64_t> ids, std::int64_t dim,
                        std::span<Gradient> dweight) {
  const std::size_t count = ids.size();
  const Scratch<std::int64_t> order(std::ssize(ids)), sorted(std::ssize(ids));
  std::iota(order.data(), order.data() + count, std::int64_t{0});
  std::stable_sort(order.data(), order.data() + count,
                   [&](std::int64_t a, std::int64_t b) { return ids[a] < ids[b]; });
  for (std::size_t i = 0; i < count; ++i)
    sorted.data()[i] = ids[order.data()[i]];
  embedding_backward_sorted(dy, std::span<const std::int64_t>(sorted.data(), count),
                            std::span<const std::int64_t>(order.data(), count), dim, dweight);
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

template void embedding_backward_sorted(std::span<const float>, std::span<const std::int64_t>,
                                        std::span<const std::int64_t>, std::int64_t,
                                        std::span<float>, const Place&);
template void embedding_backward_sorted(std::span<const float>, std::span<const std::int64_t>,
                                        std::span<const std::int64_t>, std::int64_t,
                                        std::span<bf16>, const Place&);
template void embedding_backward_sorted(std::span<const bf16>, std::span<const std::int64_t>,
                                        std::span<const std::int64_t>, std::int64_t,
                                        std::span<float>, const Place&);
template void embedding_backward_sorted(std::span<const bf16>, std::span<const std::int64_t>,
                                        std::span<const std::int64_t>, std::int64_t,
                                        std::span<bf16>, const Place&);

}  // namespace finetune::kernels
