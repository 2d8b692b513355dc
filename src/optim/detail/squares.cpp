// SPDX-License-Identifier: Apache-2.0
#include "optim/detail/squares.hpp"

#include "kernels/composed.hpp"
#include "kernels/exact_squares.hpp"
#include "kernels/gpu_kernels.hpp"
#include "optim/elements.hpp"

namespace finetune::optim {

void add_exact_squares(const at::Tensor& values, const at::Tensor& bins) {
  if (!kernels::compute_on(values.device())) {
    at::Tensor sum = bins;
    return kernels::composed::add_exact_squares_(sum, values);
  }
  kernels::add_exact_squares(elements<const float>(values),
                             elements<std::int64_t>(bins).first<kernels::SquareBins::num_values>(),
                             kernels::place_on(values.device()));
}

}  // namespace finetune::optim
