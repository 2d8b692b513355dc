// SPDX-License-Identifier: Apache-2.0
#include "kernels/composed_exact_squares.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "kernels/composed.hpp"
#include "kernels/exact_squares.hpp"

namespace finetune::kernels::composed {
namespace {

// Temporaries are four numbers of 8 bytes per element.
constexpr std::int64_t piece_elements = std::int64_t{1} << 21;

/// [2 * bins + 1] of one piece, or of each row of one.
at::Tensor bins_of(const at::Tensor& values) {
  constexpr std::int64_t low_bits = (std::int64_t{1} << SquareBins::split_bits) - 1;
  at::Tensor rest = values.to(at::kDouble);
  // NaN is not below.
  const at::Tensor num_bad =
      rest.abs().lt(SquareBins::limit).logical_not_().sum(-1, false, at::kLong);
  rest.mul_(rest);
  std::vector<at::Tensor> high, low;
  for (const double unit : SquareBins::units) {
    // As the kernel does: adding 1.5 * 2^52 units rounds to whole units.
    const double shift = 0x1.8p52 * unit;
    at::Tensor part = rest.add(shift).sub_(shift);
    rest.sub_(part);
    at::Tensor units = part.mul_(1 / unit).to(at::kLong);
    high.push_back(units.bitwise_right_shift(SquareBins::split_bits).sum(-1));
    low.push_back(units.bitwise_and_(low_bits).sum(-1));
  }
  high.insert(high.end(), low.begin(), low.end());
  high.push_back(num_bad);
  return at::stack(high, -1);
}

}  // namespace

void add_exact_squares_(at::Tensor& bins, const at::Tensor& values) {
  for (std::int64_t first = 0; first < values.numel(); first += piece_elements) {
    const std::int64_t count = std::min(piece_elements, values.numel() - first);
    bins.add_(bins_of(values.narrow(0, first, count)));
  }
}

void add_exact_squares_of_rows_(at::Tensor& bins, const at::Tensor& values) {
  if (values.size(0) == 1) {
    at::Tensor own = bins.select(0, 0);
    return add_exact_squares_(own, values.select(0, 0));
  }
  const std::int64_t most = std::max<std::int64_t>(1, piece_elements / values.size(1));
  for (std::int64_t first = 0; first < values.size(0); first += most) {
    const std::int64_t count = std::min(most, values.size(0) - first);
    bins.narrow(0, first, count).add_(bins_of(values.narrow(0, first, count)));
  }
}

}  // namespace finetune::kernels::composed
