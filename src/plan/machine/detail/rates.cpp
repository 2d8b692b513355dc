// SPDX-License-Identifier: Apache-2.0
#include "plan/machine/detail/rates.hpp"

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

namespace {

/// Without a measured one for its dtype attention is as fast as products.
double attention_tflops(const Machine& machine, core::DType compute) {
  const bool is_fp32 = compute == core::DType::f32;
  const double own = is_fp32 ? machine.fp32_attention_tflops : machine.attention_tflops;
  return own > 0 ? own : is_fp32 ? machine.fp32_tflops : machine.bf16_tflops;
}

}  // namespace

Rates::Rates(const Machine& machine, core::DType compute)
    : on_gpu_(machine.gpus_per_node > 0),
      element_bytes_(static_cast<double>(core::size_bytes(compute))),
      flops_per_s_(1e12 *
                   (compute == core::DType::f32 ? machine.fp32_tflops : machine.bf16_tflops)),
      fp8_flops_per_s_(machine.fp8_tflops > 0 ? 1e12 * machine.fp8_tflops : flops_per_s_),
      attention_flops_per_s_(1e12 * attention_tflops(machine, compute)),
      half_size_(machine.product_half_size),
      least_side_(machine.product_least_side),
      half_length_(machine.attention_half_length),
      bytes_per_s_(1e9 * machine.memory_gb_per_s),
      activation_bytes_per_s_(1e9 * machine.pass_gelements_per_s * element_bytes_),
      operation_s_(1e-6 * machine.operation_us) {}

Work Rates::products(const ProductSize& size, double count, bool is_fp8) const {
  Work work;
  if (size.flops() <= 0 || count <= 0) return work;
  const double tiled = std::max(size.rows, least_side_) * std::max(size.columns, least_side_) *
                       std::max(size.inner, least_side_);
  const double side = std::cbrt(tiled);
  const double arithmetic_s =
      2 * tiled / (is_fp8 ? fp8_flops_per_s_ : flops_per_s_) * (side + half_size_) / side;
  const double operand_bytes = is_fp8 ? 1 : element_bytes_;
  const double bytes = operand_bytes * (size.rows + size.columns) * size.inner +
                       element_bytes_ * size.rows * size.columns;
  work.products_s = count * std::max(arithmetic_s, bytes / bytes_per_s_);
  work.flops = count * size.flops();
  work.operations = count;
  return work;
}

Work Rates::attention(double flops, double visible) const {
  Work work;
  work.attention_s = flops / attention_flops_per_s_ * (visible + half_length_ / 2) / visible;
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

Work Rates::activations(double bytes, double operations) const {
  Work work = passes(bytes, operations);
  if (activation_bytes_per_s_ > 0)
    work.memory_s = std::max(work.memory_s, bytes / activation_bytes_per_s_);
  return work;
}

double Rates::seconds(const Work& work) const {
  const double device_s = work.products_s + work.attention_s + work.memory_s;
  const double program_s = work.operations * operation_s_;
  return on_gpu_ ? std::max(device_s, program_s) : device_s + program_s;
}

}  // namespace finetune::plan
