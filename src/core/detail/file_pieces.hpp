#pragma once
// SPDX-License-Identifier: Apache-2.0
// A file's bytes from its beginning to its end, in pieces that fit into memory.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/file.hpp"

namespace finetune::core {

/// Calls f(std::span<const std::byte>) for at most 8 MiB at a time. Throws: ErrorKind::io.
template <typename F>
void for_each_piece(const File& file, F&& f) {
  constexpr std::int64_t piece_bytes = std::int64_t{8} << 20;
  const std::int64_t size = file.size_bytes();
  std::vector<std::byte> buffer(static_cast<std::size_t>(std::min(size, piece_bytes)));
  for (std::int64_t done = 0; done < size;) {
    const auto piece =
        std::span(buffer).first(static_cast<std::size_t>(std::min(size - done, piece_bytes)));
    file.read_at(done, piece);
    f(std::span<const std::byte>(piece));
    done += std::ssize(piece);
  }
}

}  // namespace finetune::core
