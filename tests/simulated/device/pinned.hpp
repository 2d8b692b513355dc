#pragma once
// SPDX-License-Identifier: Apache-2.0
// Host memory that the device copies from and to while the host goes on.

#include <cstddef>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "simulated/device/arena.hpp"
#include "simulated/device/order.hpp"

namespace finetune::simulated {

/// Pinned memory. From when a copy is put on a stream until the host has waited for it, the host
/// may not read what the copy writes, nor write what it reads: whoever does ends the program, as a
/// finding of Order does. Blocks are whole pages, and looked at as wholes.
///
/// What is released while a copy needs it stays until that is done, as in libtorch's allocator.
class PinnedMemory {
 public:
  static PinnedMemory& here();

  void* allocate(std::size_t bytes);
  void release(void* address) noexcept;
  bool holds(const void* address) const { return arena_.is_device_address(address); }
  /// Where kernels find what is at this address, whatever the host may do.
  void* for_kernels(const void* address) const { return arena_.for_kernels(address); }

  /// `operation` reads or writes the block of `address`, and has done so by the event `done`.
  void lend(const void* address, Touch touch, const Clock& done, const std::string& operation);
  /// Gives the host what it knows to be done.
  void give_back();

  /// "a copy that may still be writing it" of whoever has the block of this address; empty: nobody.
  std::string user_of(const void* address) const;

 private:
  struct Loan {
    Touch touch = Touch::reads;
    Clock done;
    std::string operation;
  };
  struct Block {
    std::size_t bytes = 0;
    bool is_released = false;
    std::vector<Loan> loans;
  };
  using Blocks = std::map<const char*, Block>;

  PinnedMemory();
  Blocks::iterator block_of(const void* address);
  void protect(const char* begin, const Block& block) const;

  Arena arena_;
  mutable std::mutex mutex_;
  Blocks blocks_;
};

/// From now on, accesses of the host to memory that is not its own end the program with the reason.
void explain_faults();

}  // namespace finetune::simulated
