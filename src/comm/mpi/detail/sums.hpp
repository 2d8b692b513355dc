#pragma once
// SPDX-License-Identifier: Apache-2.0
// Sums of what arrives from other ranks.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/dtype.hpp"

namespace finetune::comm {

/// Adds n terms of f32, bf16 or f16 to sums in fp32, or of i64 to sums in i64.
void add_terms(core::DType dtype, const std::byte* terms, std::int64_t n, std::byte* sums);

/// Sums of terms of f32, bf16, f16 or i64 for `target` [count]; those of halves are kept in fp32
/// and rounded once.
class Sum {
 public:
  /// They begin at zero. Throws: ErrorKind::bug for other dtypes.
  Sum(core::DType dtype, void* target, std::int64_t count);

  std::byte* sums();
  /// Writes the sums to the target. Until then its old values may be read: they are terms.
  void finish();

 private:
  core::DType dtype_;
  void* target_;
  std::int64_t count_;
  std::vector<float> floats_;
  std::vector<std::int64_t> integers_;
};

/// Bytes of an element of such sums.
std::int64_t sum_bytes(core::DType dtype);

}  // namespace finetune::comm
