// SPDX-License-Identifier: Apache-2.0
#include "kernels/detail/tiled_product.hpp"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>

#include "kernels/detail/host_threads.hpp"
#include "kernels/one_thread.hpp"

namespace finetune::kernels {
namespace {

/// Large enough that reading its operands hides behind the products, small enough that a matrix of
/// 4,096 has work for 64 threads.
constexpr std::int64_t tile = 512;

std::int64_t num_tiles(std::int64_t size) {
  return (size + tile - 1) / tile;
}

at::Tensor tile_of(const at::Tensor& matrix, int dim, std::int64_t i) {
  return matrix.narrow(dim, i * tile, std::min(tile, matrix.size(dim) - i * tile));
}

/// Calls compute(i, k) for each tile, concurrently.
template <typename Compute>
void for_each_tile(const at::Tensor& of, const Compute& compute) {
  const std::int64_t columns = num_tiles(of.size(1)), count = num_tiles(of.size(0)) * columns;
  const int num_threads = num_host_threads();
  const auto run = [&](std::int64_t first, std::int64_t last) {
    const OneThread one(num_threads);
    // Other threads do not know in which mode of autograd the caller is.
    const at::AutoDispatchBelowADInplaceOrView no_autograd;
    for (std::int64_t i = first; i < last; ++i)
      compute(i / columns, i % columns);
  };
  launch(count, 1, run);
}

}  // namespace

at::Tensor tiled_mm(const at::Tensor& a, const at::Tensor& b) {
  if (!a.is_cpu()) return at::mm(a, b);
  at::Tensor out = at::empty({a.size(0), b.size(1)}, a.options());
  for_each_tile(out, [&](std::int64_t i, std::int64_t k) {
    at::Tensor of_out = tile_of(tile_of(out, 0, i), 1, k);
    at::mm_out(of_out, tile_of(a, 0, i), tile_of(b, 1, k));
  });
  return out;
}

at::Tensor tiled_addmm(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b, double beta,
                       double alpha) {
  if (!a.is_cpu()) return at::addmm(c, a, b, beta, alpha);
  at::Tensor out = at::empty({a.size(0), b.size(1)}, a.options());
  for_each_tile(out, [&](std::int64_t i, std::int64_t k) {
    at::Tensor of_out = tile_of(tile_of(out, 0, i), 1, k);
    at::addmm_out(of_out, tile_of(tile_of(c, 0, i), 1, k), tile_of(a, 0, i), tile_of(b, 1, k), beta,
                  alpha);
  });
  return out;
}

}  // namespace finetune::kernels
