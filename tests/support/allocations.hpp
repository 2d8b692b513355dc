#pragma once
// SPDX-License-Identifier: Apache-2.0
// How many bytes of tensors exist on the CPU, as libtorch's allocator reports them.

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <cstdint>
#include <memory>

namespace finetune::tests {

/// Counts tensors that this thread makes while the object lives; those made before do not count,
/// nor does their end.
class Allocations {
 public:
  Allocations()
      : counts_(std::make_shared<Counts>()), guard_(c10::DebugInfoKind::PROFILER_STATE, counts_) {}

  std::int64_t live_bytes() const { return counts_->live; }
  /// The most that lived at once since the beginning.
  std::int64_t peak_bytes() const { return counts_->peak; }

 private:
  struct Counts : c10::MemoryReportingInfoBase {
    /// `size` is negative when memory is given back.
    void reportMemoryUsage(void*, std::int64_t size, std::size_t, std::size_t,
                           c10::Device) override {
      live += size;
      peak = std::max(peak, live);
    }
    bool memoryProfilingEnabled() const override { return true; }
    std::int64_t live = 0, peak = 0;
  };

  std::shared_ptr<Counts> counts_;
  c10::DebugInfoGuard guard_;
};

}  // namespace finetune::tests
