#pragma once
// SPDX-License-Identifier: Apache-2.0
// Causal attention in bf16 on the CPU, in tiles whose products run at the rate of large ones.

#include <cstdint>

#include "kernels/element.hpp"

namespace finetune::kernels {

/// Where heads of one tensor lie: element (sample, head, token, i) is at sample * of_sample +
/// head * of_head + token * of_token + i.
template <class T>
struct Heads {
  T* data = nullptr;
  std::int64_t of_sample = 0, of_head = 0, of_token = 0;

  T* row(std::int64_t sample, std::int64_t head, std::int64_t token) const {
    return data + sample * of_sample + head * of_head + token * of_token;
  }
};

struct CausalShape {
  std::int64_t num_samples, length, num_heads, num_kv_heads, head_size;
};

/// softmax(q k^T / sqrt(head_size)) v, each token seeing those up to itself. Query heads share key
/// heads in groups of neighbours.
struct CausalAttention {
  CausalShape shape;
  Heads<const bf16> q, k, v;
  Heads<bf16> out;
  float* logsumexp;  ///< [samples, heads, length]: of the scaled scores, natural logarithm
};

struct CausalAttentionBackward {
  CausalShape shape;
  Heads<const bf16> q, k, v, out, d_out;
  const float* logsumexp;
  Heads<bf16> d_q, d_k, d_v;
};

/// Whether this machine and libtorch have what `causal_attention` needs, and the shape is one that
/// it computes: heads of a multiple of 16 elements, and not so long that its scratch memory (20
/// bytes an element of a head and thread) would count.
bool has_causal_attention(const CausalShape& shape);

/// Products of bf16 into fp32, softmax in fp32. A head's bits depend on its own inputs alone: not
/// on threads, nor on what else is in the batch.
/// Throws: ErrorKind::bug without `has_causal_attention`.
void causal_attention(const CausalAttention& args);
void causal_attention_backward(const CausalAttentionBackward& args);

}  // namespace finetune::kernels
