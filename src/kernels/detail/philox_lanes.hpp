#pragma once
// SPDX-License-Identifier: Apache-2.0
// Philox side by side, as vector code.

#include <cstdint>

#include "kernels/detail/functions.hpp"

namespace finetune::kernels {

/// Philox4x32-10 of `lanes` counters: `words` holds them before `run` and the blocks afterwards.
template <int lanes>
struct PhiloxLanes {
  std::uint32_t words[4][lanes];

  KOKKOS_FORCEINLINE_FUNCTION void run(std::uint32_t key0, std::uint32_t key1) {
    for (int round = 0; round < 10; ++round) {
      for (int i = 0; i < lanes; ++i) {
        const std::uint64_t a = std::uint64_t{0xD2511F53u} * words[0][i];
        const std::uint64_t b = std::uint64_t{0xCD9E8D57u} * words[2][i];
        words[0][i] = static_cast<std::uint32_t>(b >> 32) ^ words[1][i] ^ key0;
        words[1][i] = static_cast<std::uint32_t>(b);
        words[2][i] = static_cast<std::uint32_t>(a >> 32) ^ words[3][i] ^ key1;
        words[3][i] = static_cast<std::uint32_t>(a);
      }
      key0 += 0x9E3779B9u;
      key1 += 0xBB67AE85u;
    }
  }
};

}  // namespace finetune::kernels
