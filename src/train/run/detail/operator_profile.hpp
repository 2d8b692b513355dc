#pragma once
// SPDX-License-Identifier: Apache-2.0
// libtorch's own profiler (Kineto): operators, and on GPUs their kernels and copies.

#include <cstdint>
#include <filesystem>
#include <vector>

#include "core/json.hpp"

namespace finetune::train {

class OperatorProfile {
 public:
  /// From here on this thread's operators are recorded; on a GPU what they launch too.
  /// Throws: c10::Error if libtorch has no such profiler.
  explicit OperatorProfile(bool on_gpu);
  ~OperatorProfile();
  OperatorProfile(const OperatorProfile&) = delete;
  OperatorProfile& operator=(const OperatorProfile&) = delete;

  /// Events as a Chrome trace has them, in microseconds since `base_ns` (nanoseconds since 1970).
  /// `scratch` is a file that is written and removed: Kineto hands them out in no other way.
  /// Throws: ErrorKind::io.
  std::vector<core::Json> finish(std::int64_t base_ns, const std::filesystem::path& scratch);

 private:
  bool is_running_ = true;
};

}  // namespace finetune::train
