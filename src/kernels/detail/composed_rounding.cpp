// SPDX-License-Identifier: Apache-2.0
#include "kernels/detail/composed_rounding.hpp"

#include <ATen/ATen.h>

#include "core/random.hpp"

namespace finetune::kernels::composed {

std::array<at::Tensor, 2> low_and_high(const at::Tensor& product) {
  return {product.bitwise_and(0xFFFFFFFFLL),
          product.bitwise_right_shift(32).bitwise_and(0xFFFFFFFFLL)};
}

void philox(std::array<at::Tensor, 4>& words, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const auto [low_a, high_a] = low_and_high(words[0] * std::int64_t{0xD2511F53});
    const auto [low_b, high_b] = low_and_high(words[2] * std::int64_t{0xCD9E8D57});
    words = {high_b.bitwise_xor(words[1]).bitwise_xor(std::int64_t{key[0]}), low_b,
             high_a.bitwise_xor(words[3]).bitwise_xor(std::int64_t{key[1]}), low_a};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
}

at::Tensor rounding_bits(const RoundingKey& key, std::int64_t first, std::int64_t count,
                         const at::Tensor& like) {
  const auto options = like.options().dtype(at::kLong);
  if (count == 0) return at::empty({0}, options);
  const std::int64_t begin = first / rounding_tile, end = (first + count - 1) / rounding_tile + 1;
  const std::int64_t blocks = (end - begin) * rounding_lanes;
  const auto [low, high] = low_and_high(at::arange(blocks, options) + begin * rounding_lanes);
  const auto [period0, period1] =
      low_and_high(at::full({blocks}, key.step / rounding_period, options));
  std::array<at::Tensor, 4> words = {low, high, period0, period1};
  philox(words, {static_cast<std::uint32_t>(key.seed),
                 static_cast<std::uint32_t>(key.seed >> 32) +
                     static_cast<std::uint32_t>(core::RandomUse::rounding)});
  const std::uint32_t shift =
      static_cast<std::uint32_t>(key.step % rounding_period) * rounding_stride;
  const at::Tensor tiles =
      at::stack({words[0].view({-1, rounding_lanes}), words[1].view({-1, rounding_lanes}),
                 words[2].view({-1, rounding_lanes}), words[3].view({-1, rounding_lanes})},
                1);
  return low_and_high(tiles.flatten().narrow(0, first - begin * rounding_tile, count) +
                      std::int64_t{shift})[0];
}

at::Tensor rounded_by(const at::Tensor& wide, const at::Tensor& random16) {
  const at::Tensor sum = wide.view(at::kInt) + random16.to(at::kInt);
  const at::Tensor rounded = sum.bitwise_right_shift(16).to(at::kShort).view(at::kBFloat16);
  return at::where(wide.isfinite(), rounded, wide.to(at::kBFloat16));
}

StoreRounded::StoreRounded(const std::optional<RoundingKey>& key, std::int64_t first,
                           std::int64_t count, const at::Tensor& like) {
  if (key) random_ = rounding_bits(*key, first, count, like);
}

void StoreRounded::operator()(at::Tensor& stored, const at::Tensor& wide, RandomBits bits) const {
  if (stored.is_same(wide)) return;
  if (!random_.defined()) {
    stored.copy_(wide);
    return;
  }
  switch (bits) {
    case RandomBits::weight:
      stored.copy_(rounded_by(wide, random_.bitwise_right_shift(16)));
      return;
    case RandomBits::exp_avg:
      stored.copy_(rounded_by(wide, random_.bitwise_and(0xFF00).bitwise_or_(0x80)));
      return;
    case RandomBits::exp_avg_sq:
      stored.copy_(
          rounded_by(wide, random_.bitwise_and(0xFF).bitwise_left_shift(8).bitwise_or_(0x80)));
      return;
  }
}

}  // namespace finetune::kernels::composed
