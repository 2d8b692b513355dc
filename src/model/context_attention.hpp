#pragma once
// SPDX-License-Identifier: Apache-2.0
// Attention of a rank's queries to keys that come in parts: each part's softmax is merged with what
// was seen before by its logarithm of the sum of exponentials.

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "model/context.hpp"
#include "model/detail/basic_ops.hpp"
#include "model/path.hpp"

namespace finetune::model {

/// Keys and values of some tokens [M, 2 Hkv K], keys first, and which queries see them.
struct KeysAtHand {
  const at::Tensor& kv;
  const std::vector<ContextPiece>& pieces;
  const Sequence& own;  ///< own_runs: a GPU computes all causal pieces in one launch
};

/// What queries have seen so far, of all their keys in the end.
struct MergedAttention {
  at::Tensor out_NHK;       ///< fp32
  at::Tensor logsumexp_NH;  ///< fp32

  /// Of N queries that have seen nothing; whoever never sees anything has zeros.
  MergedAttention(std::int64_t num_tokens, const AttentionShape& shape, at::Device device);
};

/// Adds what the queries of a rotated qkv [N, (H + 2 Hkv) K] see of the keys at hand. A causal or
/// band piece is the first of its queries.
void attend_merged(const at::Tensor& qkv, const KeysAtHand& keys, const AttentionShape& shape,
                   Path path, MergedAttention& merged);

/// Of all keys together: what backward keeps.
struct ContextOutput {
  at::Tensor out_NF;  ///< [N, H K], in the activations' dtype
  at::Tensor logsumexp_NH;
};

class Sinks;  // model/attention_sinks.hpp

/// After all keys, in place: what follows, and backward, is with sinks.
void add_sinks(const Sinks& sinks, const AttentionShape& shape, const ContextOutput& output);
/// Adds the gradient of this rank's queries.
void add_gradient_of_sinks(const Sinks& sinks, const AttentionShape& shape,
                           const at::Tensor& d_out_NF, const ContextOutput& output);

/// Adds the gradients that keys at hand cause: to d_q [N, H K] fp32 and d_kv [M, 2 Hkv K] fp32.
void attend_merged_backward(const at::Tensor& d_out_NF, const at::Tensor& qkv,
                            const KeysAtHand& keys, const AttentionShape& shape, Path path,
                            const ContextOutput& output, at::Tensor& d_q, at::Tensor& d_kv);

}  // namespace finetune::model
