// SPDX-License-Identifier: Apache-2.0
#include "metrics/memory.hpp"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <malloc.h>

#include <atomic>

namespace finetune::metrics {
namespace {

std::atomic<std::int64_t> live = 0;
std::atomic<std::int64_t> peak = 0;

void add(std::int64_t bytes) {
  const std::int64_t now = live.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  std::int64_t highest = peak.load(std::memory_order_relaxed);
  while (now > highest && !peak.compare_exchange_weak(highest, now, std::memory_order_relaxed)) {
  }
}

/// libtorch's own allocator takes its memory from malloc, which knows the size of each block; so
/// none has to be written down.
std::int64_t size_of(void* block) {
  return block == nullptr ? 0 : static_cast<std::int64_t>(::malloc_usable_size(block));
}

/// Hands on every call. Blocks are their own context, as libtorch requires of an allocator whose
/// `raw_deleter` is used.
class CountingAllocator : public c10::Allocator {
 public:
  explicit CountingAllocator(c10::Allocator* inner) : inner_(inner) {
    deleter_ = inner->raw_deleter();
  }

  c10::DataPtr allocate(std::size_t n) override {
    c10::DataPtr block = inner_->allocate(n);
    if (block.compare_exchange_deleter(deleter_, &free_counted)) add(size_of(block.get()));
    return block;
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_counted; }
  void copy_data(void* target, const void* source, std::size_t count) const override {
    inner_->copy_data(target, source, count);
  }

 private:
  static void free_counted(void* block) {
    live.fetch_sub(size_of(block), std::memory_order_relaxed);
    deleter_(block);
  }

  c10::Allocator* inner_;
  // A deleter is a plain function without a place for its allocator.
  static inline c10::DeleterFnPtr deleter_ = nullptr;
};

}  // namespace

void count_tensor_bytes() {
  // Lives as long as the last tensor, which may be a static of libtorch: it is never destroyed.
  static auto* counting = new CountingAllocator(c10::GetCPUAllocator());
  c10::SetCPUAllocator(counting, /*priority=*/255);
}

TensorBytes tensor_bytes() {
  return {live.load(std::memory_order_relaxed), peak.load(std::memory_order_relaxed)};
}

void reset_peak() {
  peak.store(live.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

}  // namespace finetune::metrics
