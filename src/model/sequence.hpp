#pragma once
// SPDX-License-Identifier: Apache-2.0
// What attention must know about the tokens of a pass: shape, positions, rotary tables, cache.

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

namespace finetune::model {

/// Keys and values of earlier tokens, for generation; one sequence.
struct KvCache {
  /// A layer's [length, 2 * num_kv_heads * head_size], keys first; grown by the attention op.
  std::vector<at::Tensor> layers;
  std::int64_t length = 0;  ///< tokens already seen; advanced by the caller after a pass
};

/// The tensors are where the activations are.
struct Sequence {
  std::int64_t batch = 1;    ///< B
  std::int64_t length = 0;   ///< L
  at::Tensor positions;      ///< [B * L] int64
  at::Tensor cos;            ///< [positions, K / 2] fp32
  at::Tensor sin;            ///< [positions, K / 2] fp32
  KvCache* cache = nullptr;  ///< null while training

  std::int64_t num_tokens() const { return batch * length; }
};

}  // namespace finetune::model
