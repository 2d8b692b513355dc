#pragma once
// SPDX-License-Identifier: Apache-2.0
// What passes that are computed piece by piece share: views of a few tokens, and masks of windows.

#include <ATen/ATen.h>

#include <cstdint>
#include <map>
#include <utility>

#include "model/activations.hpp"

namespace finetune::model {

/// Tokens [begin, begin + length) of x [N, heads * head_size] as a view [1, heads, length, K].
at::Tensor heads_of_run(const at::Tensor& x, std::int64_t begin, std::int64_t length,
                        std::int64_t head_size);

/// Queries that see the keys up to their own.
inline Visible causal_sight(const AttentionShape& shape) {
  return {.is_causal = true, .softcap = shape.softcap};
}

/// Masks of a window by their shape: most pieces have the same.
class Bands {
 public:
  Bands(const AttentionShape& shape, at::Device device)
      : window_(shape.window), softcap_(shape.softcap), device_(device) {}

  /// Queries whose keys end where they do: query i stands at key k_length - q_length + i.
  Visible visible(std::int64_t q_length, std::int64_t k_length);

 private:
  at::Tensor make(std::int64_t q_length, std::int64_t k_length) const;

  std::int64_t window_;
  double softcap_;
  at::Device device_;
  std::map<std::pair<std::int64_t, std::int64_t>, at::Tensor> masks_;
};

}  // namespace finetune::model
