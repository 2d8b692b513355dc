#pragma once
// SPDX-License-Identifier: Apache-2.0
// What a layer that remembers goes through in one pass.

#include <cstdint>

namespace finetune::kernels {

/// Tokens [first, first + count) of a sample.
struct MemoryRun {
  std::int64_t first = 0, count = 0;
  /// What is remembered of the tokens before, which these change; null: there are none, and nothing
  /// is remembered.
  float* memory = nullptr;
};

}  // namespace finetune::kernels
