#pragma once
// SPDX-License-Identifier: Apache-2.0
// Slices wanted in another dtype than they are stored in.

#include <cstddef>
#include <vector>

#include "checkpoint/load/load.hpp"

namespace finetune::checkpoint {

/// Equal dtypes, or both floating-point.
bool can_convert(core::DType stored, core::DType wanted);

/// Memory for a slice as it is stored, until it is converted.
class Converted {
 public:
  Converted(core::DType stored, const WantedSlice& wanted);

  std::byte* stored_bytes() { return bytes_.data(); }

  /// Fills the wanted slice.
  void convert() const;

 private:
  core::DType dtype_;
  WantedSlice wanted_;
  std::vector<std::byte> bytes_;
};

}  // namespace finetune::checkpoint
