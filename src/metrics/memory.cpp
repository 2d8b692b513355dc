// SPDX-License-Identifier: Apache-2.0
#include "metrics/memory.hpp"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <malloc.h>

#include <atomic>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace finetune::metrics {
namespace {

std::atomic<std::int64_t> live = 0;
std::atomic<std::int64_t> peak = 0;

using core::BytesByUse, core::MemoryUse;

std::int64_t& of(BytesByUse& bytes, MemoryUse use) {
  return bytes[static_cast<std::size_t>(use)];
}

/// What tensors are for, remembered by their blocks.
class Uses {
 public:
  /// `before`: bytes of tensors of which nobody knows what they are for.
  void begin(std::int64_t before) {
    const std::lock_guard lock(mutex_);
    uses_.clear();
    live_ = at_peak_ = at_since_taken_ = {};
    of(live_, MemoryUse::activations) = total_ = before;
    highest_ = since_taken_ = 0;
  }

  void add(void* block, std::int64_t bytes) {
    const std::lock_guard lock(mutex_);
    const MemoryUse use = core::MemoryScope::current();
    if (use != MemoryUse::activations) uses_[block] = use;
    of(live_, use) += bytes;
    total_ += bytes;
    if (total_ > highest_) note_peak();
    if (total_ > since_taken_) {
      since_taken_ = total_;
      at_since_taken_ = live_;
    }
  }
  void remove(void* block, std::int64_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto found = uses_.find(block);
    of(live_, found == uses_.end() ? MemoryUse::activations : found->second) -= bytes;
    if (found != uses_.end()) uses_.erase(found);
    total_ -= bytes;
  }
  void reset_peak() {
    const std::lock_guard lock(mutex_);
    note_peak();
  }
  BytesByUse take_highest() {
    const std::lock_guard lock(mutex_);
    since_taken_ = total_;
    return std::exchange(at_since_taken_, live_);
  }
  BytesByUse at_peak() {
    const std::lock_guard lock(mutex_);
    return at_peak_;
  }

 private:
  void note_peak() {
    highest_ = total_;
    at_peak_ = live_;
  }

  std::mutex mutex_;
  std::unordered_map<void*, MemoryUse> uses_;  ///< of blocks that are not for activations
  BytesByUse live_ = {}, at_peak_ = {}, at_since_taken_ = {};
  std::int64_t total_ = 0, highest_ = 0, since_taken_ = 0;
};

/// Null: they are not told apart. Lives as long as the last tensor.
std::atomic<Uses*> uses = nullptr;

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
    if (!block.compare_exchange_deleter(deleter_, &free_counted)) return block;
    add(size_of(block.get()));
    if (Uses* const apart = uses) apart->add(block.get(), size_of(block.get()));
    return block;
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_counted; }
  void copy_data(void* target, const void* source, std::size_t count) const override {
    inner_->copy_data(target, source, count);
  }

 private:
  static void free_counted(void* block) {
    live.fetch_sub(size_of(block), std::memory_order_relaxed);
    if (Uses* const apart = uses; apart != nullptr && block != nullptr)
      apart->remove(block, size_of(block));
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
  if (Uses* const apart = uses) apart->reset_peak();
}

void tell_uses_apart() {
  static auto* apart = new Uses;
  apart->begin(tensor_bytes().live);
  uses = apart;
}

void tell_uses_together() {
  uses = nullptr;
}

core::BytesByUse take_highest_by_use() {
  Uses* const apart = uses;
  return apart == nullptr ? core::BytesByUse{} : apart->take_highest();
}

core::BytesByUse peak_by_use() {
  Uses* const apart = uses;
  return apart == nullptr ? core::BytesByUse{} : apart->at_peak();
}

}  // namespace finetune::metrics
