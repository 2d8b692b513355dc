#pragma once
// SPDX-License-Identifier: Apache-2.0
// What memory is taken for: whoever counts a thread's tensors can hold each part of a plan against
// what was used.

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace finetune::core {

/// The categories of a plan that tensors have. Activations are what nobody says anything of.
enum class MemoryUse { activations, weights, gathered, gradients, states, communication };
inline constexpr std::size_t num_memory_uses = 6;

/// Bytes by use.
using BytesByUse = std::array<std::int64_t, num_memory_uses>;

/// Tensors that this thread makes while it lives are for `use`; the innermost counts.
class MemoryScope {
 public:
  explicit MemoryScope(MemoryUse use) : outer_(std::exchange(current_, use)) {}
  ~MemoryScope() { current_ = outer_; }
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;

  static MemoryUse current() { return current_; }

 private:
  static inline thread_local MemoryUse current_ = MemoryUse::activations;
  MemoryUse outer_;
};

}  // namespace finetune::core
