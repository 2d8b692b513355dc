#pragma once
// SPDX-License-Identifier: Apache-2.0
// Fingerprints (XXH3, 128 bits) for comparing decks, data and manifests; not for secrecy.

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace finetune::core {

/// XXH3-128 of `bytes`, the high half first.
using Digest = std::array<std::uint64_t, 2>;
Digest digest(std::span<const std::byte> bytes);

/// 32 hexadecimal digits.
std::string to_string(const Digest& digest);

/// 32 hexadecimal digits of XXH3-128.
std::string fingerprint(std::span<const std::byte> bytes);
std::string fingerprint(std::string_view text);

/// The same of a file, a piece at a time. Throws: ErrorKind::io.
std::string file_fingerprint(const std::filesystem::path& file);

/// CRC32C (Castagnoli) of `bytes`, continuing from `crc` (0 to start).
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t crc = 0);

}  // namespace finetune::core
