// SPDX-License-Identifier: Apache-2.0
#include "train/step/loss_total.hpp"

#include <cmath>
#include <limits>

namespace finetune::train {
namespace {

// Fixed point of 2.3e-10, and up to 2^31.
constexpr int bits = 32;

}  // namespace

void LossTotal::add(double loss) {
  sum_ += loss;
  if (!is_exact_ || !std::isfinite(loss)) return;
  if (std::abs(loss) < std::ldexp(1.0, 63 - bits) / static_cast<double>(num_terms_)) {
    fixed_ += std::llrint(std::ldexp(loss, bits));
  } else {
    sum_ = std::numeric_limits<double>::infinity();
  }
}

double LossTotal::all_reduce(const comm::Communicator& batch) const {
  const double sum = batch.all_reduce(sum_, comm::Reduce::sum);
  if (!is_exact_) return sum;
  const std::int64_t fixed = batch.all_reduce(fixed_, comm::Reduce::sum);
  return std::isfinite(sum) ? std::ldexp(static_cast<double>(fixed), -bits) : sum;
}

}  // namespace finetune::train
