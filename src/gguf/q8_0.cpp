// SPDX-License-Identifier: Apache-2.0
#include "gguf/q8_0.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/dtype.hpp"
#include "core/error.hpp"

namespace finetune::gguf {

std::vector<std::byte> q8_0(std::span<const float> values) {
  core::check(std::ssize(values) % q8_0_together == 0, "q8_0: whole blocks");
  const std::size_t num_blocks = values.size() / q8_0_together;
  std::vector<std::byte> bytes(num_blocks * q8_0_bytes);
  for (std::size_t block = 0; block < num_blocks; ++block) {
    const auto of_block = values.subspan(block * q8_0_together, q8_0_together);
    float largest = 0;
    for (const float value : of_block)
      largest = std::max(largest, std::abs(value));
    const float scale = largest / 127;
    const float inverse = scale == 0 ? 0 : 1 / scale;
    std::byte* out = bytes.data() + block * q8_0_bytes;
    const std::uint16_t half = core::float_to_f16(scale);
    std::memcpy(out, &half, sizeof half);
    for (std::size_t i = 0; i < q8_0_together; ++i) {
      // Not std::round of a sum with a half: that would round what lies just below one up.
      const float rounded = std::round(of_block[i] * inverse);
      out[sizeof half + i] = static_cast<std::byte>(static_cast<std::int8_t>(rounded));
    }
  }
  return bytes;
}

}  // namespace finetune::gguf
