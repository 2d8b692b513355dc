#pragma once
// SPDX-License-Identifier: Apache-2.0
// Compressed parts of files, whose size is known before.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "data/records/detail/binary.hpp"

namespace finetune::data {

enum class Codec { zstd, lz4_frame, lz4_block, snappy, gzip };

/// What `packed` holds, which is `size` bytes. Throws: ErrorKind::input beginning with `where` for
/// what is damaged, or holds another number of bytes.
std::vector<std::byte> unpack(Codec codec, Bytes packed, std::size_t size,
                              const std::string& where);

/// No text expands to more than this: what does is a mistake or an attack.
constexpr std::int64_t most_unpacked(std::int64_t packed_bytes) {
  constexpr std::int64_t most_times = 250, always = std::int64_t{64} << 20;
  return always + most_times * packed_bytes;
}

}  // namespace finetune::data
