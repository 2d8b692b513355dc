// SPDX-License-Identifier: Apache-2.0
#include "core/hash.hpp"

#include <fmt/format.h>
#include <isa-l.h>
#include <xxhash.h>

#include <algorithm>
#include <memory>

#include "core/detail/file_pieces.hpp"
#include "core/error.hpp"
#include "core/file.hpp"

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

std::string file_fingerprint(const std::filesystem::path& path) {
  const File file(path, File::Mode::read);
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                       XXH3_freeState);
  check(state != nullptr && XXH3_128bits_reset(state.get()) == XXH_OK, "a hash begins");
  for_each_piece(file, [&](std::span<const std::byte> piece) {
    XXH3_128bits_update(state.get(), piece.data(), piece.size());
  });
  const XXH128_hash_t hash = XXH3_128bits_digest(state.get());
  return to_string(Digest{hash.high64, hash.low64});
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
