#pragma once
// SPDX-License-Identifier: Apache-2.0
// Seconds of the work of one rank, from what a machine reaches.

#include <cstdint>

#include "core/dtype.hpp"
#include "plan/machine/machine.hpp"

namespace finetune::plan {

/// Rows, columns and inner dimension of a matrix product.
struct ProductSize {
  double rows = 0;
  double columns = 0;
  double inner = 0;

  double flops() const { return 2 * rows * columns * inner; }
};

/// Work of one rank, in the kinds that take their time in different ways. Seconds are those of the
/// device that computes, operations those that the program starts.
struct Work {
  double products_s = 0;
  double attention_s = 0;
  double memory_s = 0;    ///< passes over memory
  double flops = 0;       ///< of products and attention
  double operations = 0;  ///< calls of the program

  Work& operator+=(const Work& other);
  friend Work operator+(Work a, const Work& b) { return a += b; }
  friend Work operator*(double factor, const Work& work);
};

class Rates {
 public:
  Rates(const Machine& machine, core::DType compute);

  /// `count` products of one size. A product takes as long as its arithmetic, at a rate that grows
  /// with its size s = cbrt(rows columns inner) as s / (s + product_half_size), or as its operands
  /// and its result need to pass the memory, whichever is longer (the roofline of Williams et al.
  /// 2009, doi 10.1145/1498765.1498785). Arithmetic fills tiles, so that no side counts as less
  /// than product_least_side.
  /// `is_fp8`: of operands of 8 bits.
  Work products(const ProductSize& size, double count = 1, bool is_fp8 = false) const;
  /// Of sequences in which a token sees `visible` on average: what is done once a token, not once a
  /// pair of them, takes as long as attention_half_length / 2 visible ones.
  Work attention(double flops, double visible) const;
  /// `operations` passes over `bytes` altogether, read or written.
  Work passes(double bytes, double operations = 1) const;
  /// The same over activations, which caches may hold: by their elements, if these take longer than
  /// their bytes.
  Work activations(double bytes, double operations = 1) const;

  /// A GPU works off what the program has started, so the slower of both counts; on the CPU both
  /// happen one after the other.
  double seconds(const Work& work) const;

 private:
  bool on_gpu_;
  double element_bytes_;
  double flops_per_s_;
  double fp8_flops_per_s_;
  double attention_flops_per_s_;
  double half_size_;
  double least_side_;
  double half_length_;
  double bytes_per_s_;
  double activation_bytes_per_s_;  ///< 0: as memory
  double operation_s_;
};

}  // namespace finetune::plan
