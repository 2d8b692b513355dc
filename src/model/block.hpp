#pragma once
// SPDX-License-Identifier: Apache-2.0
// A transformer block, put together from rows of a parameter table: written once, for devices and
// for plans.

#include <cstdint>

#include "model/detail/basic_ops.hpp"

namespace finetune::model {

/// What block `i_layer` attends with.
inline AttentionShape attention_shape(const Architecture& a, std::int64_t i_layer) {
  const Layer layer = a.layer(i_layer);
  return {a.num_heads, a.num_kv_heads, a.head_size, layer.rotary, layer.window, layer.chunk};
}

/// attention(norm(x)), projected: x_ND -> [N, D].
template <typename Values>
typename Values::Tensor attention_half(BasicOps<Values>& ops, const Architecture& a,
                                       const BlockRows& rows, const typename Values::Tensor& x_ND,
                                       const typename Values::Sequence& sequence,
                                       std::int64_t i_layer) {
  const AttentionShape shape = attention_shape(a, i_layer);
  const Layer layer = a.layer(i_layer);
  auto qkv = ops.norm_linear(x_ND, rows.attention_norm, rows.qkv, a.norm_eps);
  if (rows.qkv_bias.num > 0) qkv = ops.add_bias(qkv, rows.qkv_bias);
  // A weightless norm of a head commutes with its rotation, so one place does for both kinds.
  if (layer.head_norm != HeadNorm::none)
    qkv = ops.head_norm(qkv, shape, rows.query_norm, rows.key_norm, a.norm_eps);
  if (layer.tunes_temperature) qkv = ops.tune_temperature(qkv, shape, sequence, a.temperature);
  return ops.linear(ops.attention(qkv, shape, sequence, i_layer), {rows.attention_out, 1});
}

/// h = x + attention(norm(x)); y = h + feed_forward(norm(h)). x_ND -> y_ND.
/// Source: Touvron et al. 2023 (arXiv 2302.13971).
template <typename Values>
typename Values::Tensor pre_norm_block(BasicOps<Values>& ops, const Architecture& a,
                                       const BlockRows& rows, const typename Values::Tensor& x_ND,
                                       const typename Values::Sequence& sequence,
                                       std::int64_t i_layer) {
  const auto attention = attention_half(ops, a, rows, x_ND, sequence, i_layer);
  const FeedForwardRows& plain = rows.feed_forward;
  if (!a.layer(i_layer).has_experts) {
    const auto [h_ND, gate_up] =
        ops.add_norm_linear(attention, x_ND, rows.feed_forward_norm, plain.gate_up, a.norm_eps);
    return ops.add(h_ND, ops.swiglu_linear(gate_up, {plain.down, 1}));
  }
  const auto [h_ND, normed] = ops.add_rms_norm(attention, x_ND, rows.feed_forward_norm, a.norm_eps);
  const auto y_ND = ops.add(h_ND, ops.experts(normed, rows.experts, a.experts, sequence));
  if (a.experts.d_shared == 0) return y_ND;
  return ops.add(y_ND, ops.swiglu_linear(ops.linear(normed, plain.gate_up), {plain.down, 1}));
}

}  // namespace finetune::model
