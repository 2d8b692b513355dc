// SPDX-License-Identifier: Apache-2.0
#include "simulated/device/pinned.hpp"

#include <c10/util/Backtrace.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <system_error>

namespace finetune::simulated {
namespace {

constexpr std::size_t page_bytes = 4096;
constexpr std::size_t pinned_bytes = std::size_t{64} << 30;

struct sigaction action_before;

/// On the thread that did it, so that a debugger and a backtrace show where.
void explain(int, siginfo_t* fault, void*) {
  const void* address = fault->si_addr;
  const std::string user = PinnedMemory::here().user_of(address);
  if (!user.empty()) {
    found(fmt::format("the host touches pinned memory of {}", user),
          "it has not waited for the copy's event", "Wait for the event, or for the stream, first");
  } else if (Arena::here().is_device_address(address)) {
    fmt::print(stderr,
               "simulated device: the host follows an address of the device (its memory is not the "
               "host's). Copy it first.\n{}\n",
               c10::get_backtrace());
    std::fflush(nullptr);
  }
  // Again, with whatever would have come of it.
  ::sigaction(SIGSEGV, &action_before, nullptr);
}

}  // namespace

PinnedMemory& PinnedMemory::here() {
  static auto* const memory = new PinnedMemory();
  return *memory;
}

PinnedMemory::PinnedMemory() : arena_(pinned_bytes, page_bytes, Arena::HostMay::read_and_write) {}

void* PinnedMemory::allocate(std::size_t bytes) {
  void* address = arena_.allocate(bytes);
  if (address == nullptr) return nullptr;
  const std::lock_guard lock(mutex_);
  blocks_[static_cast<const char*>(address)] = {.bytes = arena_.rounded(bytes), .loans = {}};
  return address;
}

PinnedMemory::Blocks::iterator PinnedMemory::block_of(const void* address) {
  const auto* at = static_cast<const char*>(address);
  auto block = blocks_.upper_bound(at);
  if (block == blocks_.begin()) return blocks_.end();
  --block;
  return at < block->first + block->second.bytes ? block : blocks_.end();
}

void PinnedMemory::protect(const char* begin, const Block& block) const {
  int may = PROT_READ | PROT_WRITE;
  for (const Loan& loan : block.loans)
    may &= loan.touch == Touch::writes ? PROT_NONE : PROT_READ;
  if (::mprotect(const_cast<char*>(begin), block.bytes, may) != 0)
    throw std::system_error(errno, std::generic_category(), "protecting pinned memory");
}

void PinnedMemory::release(void* address) noexcept {
  if (address == nullptr) return;
  const std::lock_guard lock(mutex_);
  const auto block = block_of(address);
  if (block == blocks_.end() || block->second.is_released) std::abort();  // released twice
  if (!block->second.loans.empty()) {
    block->second.is_released = true;
    return;
  }
  blocks_.erase(block);
  arena_.release(address);
}

void PinnedMemory::lend(const void* address, Touch touch, const Clock& done,
                        const std::string& operation) {
  const std::lock_guard lock(mutex_);
  const auto block = block_of(address);
  if (block == blocks_.end()) return;
  block->second.loans.push_back({touch, done, operation});
  protect(block->first, block->second);
}

void PinnedMemory::give_back() {
  const std::lock_guard lock(mutex_);
  for (auto block = blocks_.begin(); block != blocks_.end();) {
    const auto here = block++;
    if (here->second.loans.empty()) continue;
    const auto is_done = [](const Loan& loan) { return Order::here().host_knows(loan.done); };
    if (std::erase_if(here->second.loans, is_done) == 0) continue;
    protect(here->first, here->second);
    if (!here->second.loans.empty() || !here->second.is_released) continue;
    void* address = const_cast<char*>(here->first);
    blocks_.erase(here);
    arena_.release(address);
  }
}

std::string PinnedMemory::user_of(const void* address) const {
  // The thread that faulted may hold the lock: better no words than none to end.
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || !holds(address)) return {};
  const auto block = const_cast<PinnedMemory*>(this)->block_of(address);
  if (block == blocks_.end() || block->second.loans.empty()) return {};
  const Loan& loan = block->second.loans.back();
  return fmt::format("{} bytes that {} may still be {}", block->second.bytes, loan.operation,
                     loan.touch == Touch::writes ? "writing" : "reading");
}

void explain_faults() {
  struct sigaction action = {};
  action.sa_sigaction = &explain;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGSEGV, &action, &action_before);
}

}  // namespace finetune::simulated
