#pragma once
// SPDX-License-Identifier: Apache-2.0
// Attention to a cache.

#include <vector>

#include "model/ops.hpp"
#include "model/rope.hpp"
#include "support/weights.hpp"

namespace finetune::tests {

/// Attention of ops without weights, fed the tokens of one sequence in passes of these lengths.
inline at::Tensor with_cache(const model::Architecture& architecture, const at::Tensor& qkv,
                             const model::AttentionShape& shape,
                             const std::vector<std::int64_t>& passes,
                             model::Path path = model::Path::kernels) {
  TinyWeights weights({});
  model::Ops ops(weights, path);
  model::KvCache cache;
  cache.layers.resize(1);
  std::vector<at::Tensor> outputs;
  for (const std::int64_t length : passes) {
    const model::Sequence sequence = model::make_sequence(architecture, length, cache);
    outputs.push_back(
        ops.attention(qkv.narrow(0, cache.length, length).clone(), shape, sequence, 0));
    cache.length += length;
  }
  return at::cat(outputs);
}

}  // namespace finetune::tests
