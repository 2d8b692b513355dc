// SPDX-License-Identifier: Apache-2.0
#include "core/hash.hpp"

#include <fmt/format.h>
#include <isa-l.h>
#include <xxhash.h>

#include <algorithm>

namespace finetune::core {

Digest digest(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.high64, hash.low64};
}

std::string to_string(const Digest& digest) {
  return fmt::format("{:016x}{:016x}", digest[0], digest[1]);
}

std::string fingerprint(std::span<const std::byte> bytes) {
  return to_string(digest(bytes));
}

std::string fingerprint(std::string_view text) {
  return fingerprint(std::as_bytes(std::span(text)));
}

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t crc) {
  // ISA-L wants a non-const pointer it does not write through, an int length, and leaves the two
  // customary complements to the caller.
  constexpr std::size_t largest = std::size_t{1} << 30;
  std::uint32_t state = ~crc;
  while (!bytes.empty()) {
    const std::size_t n = std::min(bytes.size(), largest);
    auto* data = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(bytes.data()));
    state = crc32_iscsi(data, static_cast<int>(n), state);
    bytes = bytes.subspan(n);
  }
  return ~state;
}

}  // namespace finetune::core
