// SPDX-License-Identifier: Apache-2.0
#include "plan/rates.hpp"

#include <algorithm>
#include <cmath>

namespace finetune::plan {

Work& Work::operator+=(const Work& other) {
  products_s += other.products_s;
  attention_s += other.attention_s;
  memory_s += other.memory_s;
  flops += other.flops;
  operations += other.operations;
  return *this;
}

Work operator*(double factor, const Work& work) {
  return {factor * work.products_s, factor * work.attention_s, factor * work.memory_s,
          factor * work.flops, factor * work.operations};
}

Rates::Rates(const Machine& machine, core::DType compute)
    : on_gpu_(machine.gpus_per_node > 0),
      element_bytes_(static_cast<double>(core::size_bytes(compute))),
      flops_per_s_(1e12 *
                   (compute == core::DType::f32 ? machine.fp32_tflops : machine.bf16_tflops)),
      attention_flops_per_s_(machine.attention_tflops > 0 ? 1e12 * machine.attention_tflops
                                                          : flops_per_s_),
      half_size_(machine.product_half_size),
      bytes_per_s_(1e9 * machine.memory_gb_per_s),
      operation_s_(1e-6 * machine.operation_us) {}

Work Rates::products(const ProductSize& size, double count) const {
  Work work;
  if (size.flops() <= 0 || count <= 0) return work;
  const double side = std::cbrt(size.flops() / 2);
  const double arithmetic_s = size.flops() / flops_per_s_ * (side + half_size_) / side;
  const double bytes = element_bytes_ * (size.rows * size.inner + size.inner * size.columns +
                                         size.rows * size.columns);
  work.products_s = count * std::max(arithmetic_s, bytes / bytes_per_s_);
  work.flops = count * size.flops();
  work.operations = count;
  return work;
}

Work Rates::attention(double flops) const {
  Work work;
  work.attention_s = flops / attention_flops_per_s_;
  work.flops = flops;
  work.operations = 1;
  return work;
}

Work Rates::passes(double bytes, double operations) const {
  Work work;
  work.memory_s = bytes / bytes_per_s_;
  work.operations = operations;
  return work;
}

double Rates::seconds(const Work& work) const {
  const double device_s = work.products_s + work.attention_s + work.memory_s;
  const double program_s = work.operations * operation_s_;
  return on_gpu_ ? std::max(device_s, program_s) : device_s + program_s;
}

}  // namespace finetune::plan
