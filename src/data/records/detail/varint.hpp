#pragma once
// SPDX-License-Identifier: Apache-2.0
// Whole numbers of seven bits a byte, the lowest first, as Thrift and Parquet write them.

#include <cstddef>
#include <cstdint>
#include <optional>

#include "data/records/detail/binary.hpp"

namespace finetune::data {

/// The number at `at`, which moves behind it; nothing where the bytes end before, or it has more
/// than 64 bits.
inline std::optional<std::uint64_t> read_varint(Bytes bytes, std::size_t& at) {
  std::uint64_t value = 0;
  for (int shift = 0; shift < 64 && at < bytes.size(); shift += 7) {
    const auto byte = static_cast<std::uint64_t>(bytes[at++]);
    value |= (byte & 127) << shift;
    if (byte < 128) return value;
  }
  return std::nullopt;
}

/// 0, -1, 1, -2, ... of 0, 1, 2, 3, ...
constexpr std::int64_t zigzag(std::uint64_t value) {
  return static_cast<std::int64_t>(value >> 1) ^ -static_cast<std::int64_t>(value & 1);
}

}  // namespace finetune::data
