#pragma once
// SPDX-License-Identifier: Apache-2.0
// Philox and stochastic rounding, put together from ATen operations; on any device.

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <optional>

#include "kernels/rounding.hpp"

namespace finetune::kernels::composed {

/// The two halves of a product modulo 2^64.
std::array<at::Tensor, 2> low_and_high(const at::Tensor& product);

/// Philox4x32-10 of four tensors of words, kept in int64.
void philox(std::array<at::Tensor, 4>& words, std::array<std::uint32_t, 2> key);

/// The random bits of elements `first` to `first + count - 1` of the model, as rounding.hpp defines
/// them: int64 [count], each below 2^32, where `like` is.
at::Tensor rounding_bits(const RoundingKey& key, std::int64_t first, std::int64_t count,
                         const at::Tensor& like);

/// `wide` [N] fp32 as bf16, each number rounded by its 16 bits in `random16` (int64); what is not
/// finite to nearest.
at::Tensor rounded_by(const at::Tensor& wide, const at::Tensor& random16);

/// Which of an element's random bits round what, as bits_for_weight and its like share them out.
enum class RandomBits { weight, exp_avg, exp_avg_sq };

/// Stores what an optimizer's step computed in fp32 where narrower tensors keep it.
class StoreRounded {
 public:
  /// Of `count` elements from `first` on, over the whole model. Without a key: to nearest.
  StoreRounded(const std::optional<RoundingKey>& key, std::int64_t first, std::int64_t count,
               const at::Tensor& like);

  /// Nothing where `wide` is `stored` itself.
  void operator()(at::Tensor& stored, const at::Tensor& wide, RandomBits bits) const;

 private:
  at::Tensor random_;  ///< undefined: to nearest
};

}  // namespace finetune::kernels::composed
