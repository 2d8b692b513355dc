// SPDX-License-Identifier: Apache-2.0
#include "kernels/composed_noise.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>

#include "core/random.hpp"
#include "kernels/detail/composed_rounding.hpp"

namespace finetune::kernels::composed {
namespace {

/// Some ten words of 8 bytes for 4 elements live at the same time.
constexpr std::int64_t most_noisy_elements = 1 << 21;

/// fp32 [tokens, dim], uniform in [-1, 1).
at::Tensor uniform(const at::Tensor& tokens, std::int64_t dim, std::uint64_t seed) {
  const std::int64_t rows = tokens.size(0), tiles = (dim + noise_tile - 1) / noise_tile;
  const at::Tensor blocks = at::arange(tiles * noise_lanes, tokens.options()).unsqueeze(0);
  const auto [low, high] = low_and_high(tokens.unsqueeze(1));
  std::array<at::Tensor, 4> words = {low, high, blocks, at::zeros({1, 1}, tokens.options())};
  for (at::Tensor& word : words)
    word = word.expand({rows, tiles * noise_lanes});
  philox(words, {static_cast<std::uint32_t>(seed),
                 static_cast<std::uint32_t>(seed >> 32) +
                     static_cast<std::uint32_t>(core::RandomUse::noise)});
  for (at::Tensor& word : words)
    word = word.view({rows, tiles, noise_lanes});
  return at::stack(words, 2)
      .view({rows, tiles * noise_tile})
      .narrow(1, 0, dim)
      .bitwise_right_shift(8)
      .to(at::kFloat)
      .mul_(0x1p-23)
      .sub_(1);
}

}  // namespace

void add_noise_(at::Tensor& x, const at::Tensor& tokens, const at::Tensor& scales,
                std::uint64_t seed) {
  const std::int64_t rows = x.size(0), dim = x.size(1);
  const std::int64_t step =
      std::max<std::int64_t>(1, most_noisy_elements / std::max<std::int64_t>(1, dim));
  for (std::int64_t row = 0; row < rows; row += step) {
    const std::int64_t length = std::min(step, rows - row);
    at::Tensor part = x.narrow(0, row, length);
    const at::Tensor noise = uniform(tokens.narrow(0, row, length), dim, seed)
                                 .mul_(scales.narrow(0, row, length).unsqueeze(1));
    part.copy_(part.to(at::kFloat) + noise);
  }
}

}  // namespace finetune::kernels::composed
