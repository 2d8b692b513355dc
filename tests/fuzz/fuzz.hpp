#pragma once
// SPDX-License-Identifier: Apache-2.0
// What the fuzz targets have in common: an input ends in a result or in one clean refusal.

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string>
#include <string_view>

#include "core/error.hpp"

namespace finetune::fuzz {

/// Ends the process with `what` if a promise does not hold; libFuzzer keeps the input.
inline void require(bool holds, std::string_view what) {
  if (holds) return;
  std::fprintf(stderr, "broken promise: %.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

/// Runs `f`. True if it ended normally; false if it refused the input with a message that begins
/// with `where`. An Error of kind bug and any other exception is a finding.
template <typename F>
bool accepts(std::string_view where, F&& f) {
  try {
    f();
    return true;
  } catch (const core::Error& error) {
    const std::string_view message = error.what();
    static const bool show = std::getenv("FINETUNE_FUZZ_SHOW") != nullptr;
    if (show || !message.starts_with(where)) std::fprintf(stderr, "refused: %s\n", error.what());
    require(error.kind() != core::ErrorKind::bug, message);
    require(message.starts_with(where), "a refusal begins with the place");
    return false;
  }
}

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// A file in memory that has a path as long as the object lives.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view content)
      : descriptor_(::memfd_create("input", MFD_CLOEXEC)) {
    require(descriptor_ >= 0, "memory for a file");
    const auto written = ::write(descriptor_, content.data(), content.size());
    require(written == static_cast<ssize_t>(content.size()), "a file in memory takes all bytes");
  }
  ~MemoryFile() { ::close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::filesystem::path path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

}  // namespace finetune::fuzz
