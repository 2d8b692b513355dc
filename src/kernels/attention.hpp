#pragma once
// SPDX-License-Identifier: Apache-2.0
// Causal attention on the CPU, in tiles whose products run at the rate of large ones: in bf16 by
// the processor's own instructions, or widened to fp32.

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
  /// Keys, if they begin before the queries; both end at the same token. 0: as many.
  std::int64_t num_keys = 0;
  std::int64_t window = 0;  ///< a token sees itself and the window - 1 before it; 0: all
  bool is_causal = true;    ///< false: every query sees every key, of which there may be fewer

  std::int64_t keys() const { return num_keys > 0 ? num_keys : length; }
};

/// softmax(q k^T / sqrt(head_size)) v, each token seeing those up to itself. Query heads share key
/// heads in groups of neighbours. T: bf16; in widened_attention also float and f16.
template <class T>
struct CausalAttention {
  CausalShape shape;
  Heads<const T> q, k, v;
  Heads<T> out;
  float* logsumexp;  ///< [samples, heads, length]: of the scaled scores, natural logarithm
};

template <class T>
struct CausalAttentionBackward {
  CausalShape shape;
  Heads<const T> q, k, v, out, d_out;
  const float* logsumexp;
  Heads<T> d_q, d_k, d_v;
};

/// Whether this machine and libtorch have what `causal_attention` needs, and the shape is one that
/// it computes: without a window, as many keys as queries, heads of a multiple of 16 elements, and
/// not so long that its scratch memory (20 bytes an element of a head and thread) would count.
bool has_causal_attention(const CausalShape& shape);

/// Products of bf16 into fp32, softmax in fp32. A head's bits depend on its own inputs alone: not
/// on threads, nor on what else is in the batch.
/// Throws: ErrorKind::bug without `has_causal_attention`.
void causal_attention(const CausalAttention<bf16>& args);
void causal_attention_backward(const CausalAttentionBackward<bf16>& args);

/// Scratch memory of `widened_attention` backward: bytes per element of a head, for each thread.
/// Heads are padded to whole tiles of tokens and panels of channels, and longer ones than the
/// largest are not computed.
inline constexpr std::int64_t widened_bytes_per_element = 28;
inline constexpr std::int64_t widened_tile = 48, widened_panel = 16;
inline constexpr std::int64_t most_widened_elements = std::int64_t{9} << 20;

/// Whether `widened_attention` computes this shape: any whose heads are not larger than that.
bool has_widened_attention(const CausalShape& shape);

/// The same with every product and sum in fp32: for fp32, and for narrow floats on processors
/// without instructions for them. A head's bits depend on its own inputs alone: not on threads,
/// nor, where there are fused multiply-adds, on the processor. Throws: ErrorKind::bug without
/// `has_widened_attention`.
template <class T>
void widened_attention(const CausalAttention<T>& args);
template <class T>
void widened_attention_backward(const CausalAttentionBackward<T>& args);

}  // namespace finetune::kernels
