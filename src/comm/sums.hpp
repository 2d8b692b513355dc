#pragma once
// SPDX-License-Identifier: Apache-2.0
// Private to comm: sums of what arrives from other ranks.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/dtype.hpp"

namespace finetune::comm {

/// Adds terms of f32, bf16, f16 or i64 into `target` [count]; the halves in fp32, rounded once.
class Sum {
 public:
  /// Throws: ErrorKind::bug for other dtypes.
  Sum(core::DType dtype, void* target, std::int64_t count);

  /// Adds terms [n] to the elements from `offset`; the first terms of an element start its sum.
  void add(const std::byte* terms, std::int64_t offset, std::int64_t n);

  /// Writes the sums to the target. Until then its old values may be read: they are terms.
  void finish();

 private:
  core::DType dtype_;
  void* target_;
  std::int64_t count_;
  std::vector<float> floats_;
  std::vector<std::int64_t> integers_;
};

}  // namespace finetune::comm
