#pragma once
// SPDX-License-Identifier: Apache-2.0
// A transformer block, put together from rows of a parameter table: written once, for devices and
// for plans.

#include <cmath>
#include <cstdint>
#include <tuple>
#include <utility>

#include "model/detail/basic_ops.hpp"
#include "model/sides.hpp"

namespace finetune::model {

/// What block `i_layer` attends with.
inline AttentionShape attention_shape(const Architecture& a, std::int64_t i_layer) {
  const Layer layer = a.layer(i_layer);
  return {.num_heads = a.num_heads,
          .num_kv_heads = a.num_kv_heads_of(layer),
          .head_size = a.head_size_of(layer),
          .rotary = layer.rotary,
          .rotary_size = a.rotary_size > 0 ? a.rotary_size : a.head_size_of(layer),
          .window = layer.window,
          .chunk = layer.chunk,
          .softcap = a.score_softcap};
}

/// The norm with these rows.
inline Norm norm_of(const Architecture& a, const NormRows& rows) {
  return {rows, a.norm_eps, a.norm_kind};
}

/// What a half of a block adds to its input: normed and scaled where the architecture says so.
template <typename Values>
typename Values::Tensor added(BasicOps<Values>& ops, const Architecture& a,
                              typename Values::Tensor x_ND, int bias_row,
                              const NormRows& norm_rows) {
  if (bias_row >= 0) x_ND = ops.add_bias(x_ND, {bias_row, 1});
  if (norm_rows.exist()) x_ND = ops.norm(x_ND, norm_of(a, norm_rows));
  return a.residual_scale == 1 ? x_ND : ops.scale(x_ND, a.residual_scale);
}

/// How the heads of latents lie in a fused tensor.
inline LatentHeads latent_heads(const Architecture& a) {
  const auto size = static_cast<double>(a.head_size), told = static_cast<double>(a.query_size());
  return {.num_heads = a.num_heads,
          .head_size = a.head_size,
          .turned = a.rotary_size,
          .unturned = a.latents.unturned,
          .value_size = a.latents.value_size,
          // Attention divides by the root of the size that it sees.
          .query_scale = a.rope_scaling.score_scale * std::sqrt(size / told)};
}

/// Queries, keys and values [N, 3 H K] by what the block's input gave (BlockRows::qkv).
template <typename Values>
typename Values::Tensor heads_of_latents(BasicOps<Values>& ops, const Architecture& a,
                                         const BlockRows& rows,
                                         const typename Values::Tensor& latents) {
  const std::int64_t queries = rows.query_up < 0 ? a.num_heads * a.query_size() : a.latents.d_query;
  auto parts = ops.split(latents, {queries, a.latents.d_key_value, a.rotary_size});
  const auto up = [&](const auto& x, const NormRows& norm, int row) {
    return ops.norm_linear(x, Norm{norm, a.latents.norm_eps, a.norm_kind}, {row, 1});
  };
  const auto q = rows.query_up < 0 ? parts[0] : up(parts[0], rows.query_norm, rows.query_up);
  const auto kv = up(parts[1], rows.key_norm, rows.key_value_up);
  return ops.join_heads(q, kv, parts[2], latent_heads(a));
}

/// Attention by queries, keys and values [N, (H + 2 Hkv) K] as they were computed, or latents,
/// projected: [N, D].
template <typename Values>
typename Values::Tensor attend(BasicOps<Values>& ops, const Architecture& a, const BlockRows& rows,
                               typename Values::Tensor qkv,
                               const typename Values::Sequence& sequence, std::int64_t i_layer,
                               Sides<typename Values::Tensor>& sides) {
  AttentionShape shape = attention_shape(a, i_layer);
  shape.sinks = rows.sinks;
  const Layer layer = a.layer(i_layer);
  const bool reads_keys = sides.layout.read[Side::keys_values].exists();
  if (reads_keys) shape.num_kv_heads = 0;
  if (a.latents.exist()) qkv = heads_of_latents(ops, a, rows, qkv);
  if (rows.qkv_bias.num > 0) qkv = ops.add_bias(qkv, rows.qkv_bias);
  if (a.qkv_by_key_head) qkv = ops.sort_heads(qkv, shape);
  if (layer.reads_keys) qkv = ops.repeat_keys(qkv, shape);
  typename Values::Tensor gates;
  if (a.gates_attention) std::tie(qkv, gates) = ops.part_gates(qkv, shape);
  if (layer.turns_before_norm && layer.rotary != Rotary::none) {
    qkv = ops.rotate(qkv, shape, sequence);
    shape.rotary = Rotary::none;
  }
  // A weightless norm of a head commutes with its rotation, so one place does for both kinds.
  if (layer.head_norm != HeadNorm::none)
    qkv = ops.head_norm(qkv, shape,
                        {norm_of(a, rows.query_norm), norm_of(a, rows.key_norm), a.norms_values});
  if (reads_keys) {
    qkv = ops.join(qkv, sides.read[Side::keys_values]);
    shape.num_kv_heads = a.num_kv_heads_of(layer);
  }
  if (const SideSlice& keys = sides.layout.written[Side::keys_values]; keys.exists())
    sides.written[Side::keys_values] = ops.last_channels(qkv, keys.size);
  if (layer.tunes_temperature) qkv = ops.tune_temperature(qkv, shape, sequence, a.temperature);
  auto heads = ops.attention(qkv, shape, sequence, i_layer);
  if (a.value_size() < a.head_size) heads = ops.first_channels(heads, a.num_heads, a.value_size());
  if (a.gates_attention) heads = ops.gate(heads, gates);
  const auto out = ops.linear(heads, {rows.attention_out, 1});
  return added(ops, a, out, rows.attention_out_bias, rows.attention_added_norm);
}

/// The same of a layer that remembers, by its inputs' product.
template <typename Values>
typename Values::Tensor recall(BasicOps<Values>& ops, const Architecture& a, const BlockRows& rows,
                               const typename Values::Tensor& inputs,
                               const typename Values::Sequence& sequence, std::int64_t i_layer) {
  const auto heads =
      rows.state.exists()
          ? ops.state_space(inputs, rows.state, a.states, a.norm_eps, sequence, i_layer)
          : ops.delta_rule(inputs, rows.delta, a.delta, a.norm_eps, sequence, i_layer);
  const auto out = ops.linear(heads, {rows.attention_out, 1});
  return added(ops, a, out, rows.attention_out_bias, rows.attention_added_norm);
}

/// attention(norm(x)), projected: x_ND -> [N, D].
template <typename Values>
typename Values::Tensor attention_half(BasicOps<Values>& ops, const Architecture& a,
                                       const BlockRows& rows, const typename Values::Tensor& x_ND,
                                       const typename Values::Sequence& sequence,
                                       std::int64_t i_layer,
                                       Sides<typename Values::Tensor>& sides) {
  const bool remembers = a.layer(i_layer).remembers();
  const RowRange read = rows.state.exists() ? rows.state.inputs
                        : remembers         ? rows.delta.inputs
                                            : rows.qkv;
  auto inputs = rows.attention_norm.exist()
                    ? ops.norm_linear(x_ND, norm_of(a, rows.attention_norm), read)
                    : ops.linear(x_ND, read);
  return remembers ? recall(ops, a, rows, inputs, sequence, i_layer)
                   : attend(ops, a, rows, std::move(inputs), sequence, i_layer, sides);
}

/// down(activated(gate_up)), with the biases there are.
template <typename Values>
typename Values::Tensor activated_half(BasicOps<Values>& ops, const Architecture& a,
                                       const FeedForwardRows& rows,
                                       typename Values::Tensor gate_up) {
  if (rows.gate_up_bias.num > 0) gate_up = ops.add_bias(gate_up, rows.gate_up_bias);
  const auto y_ND = ops.activated_linear(gate_up, a.activation, rows.activation, {rows.down, 1});
  return rows.down_bias >= 0 ? ops.add_bias(y_ND, {rows.down_bias, 1}) : y_ND;
}

/// h + experts(normed), and the shared expert.
template <typename Values>
typename Values::Tensor add_experts(BasicOps<Values>& ops, const Architecture& a,
                                    const BlockRows& rows, const typename Values::Tensor& h_ND,
                                    const typename Values::Tensor& normed,
                                    const typename Values::Sequence& sequence) {
  const auto scaled = [&](const auto& part_ND) {
    return a.residual_scale == 1 ? part_ND : ops.scale(part_ND, a.residual_scale);
  };
  const auto y_ND =
      ops.add(h_ND, scaled(ops.experts(normed, {}, rows.experts, a.experts, sequence)));
  if (a.experts.d_shared == 0) return y_ND;
  auto shared =
      activated_half(ops, a, rows.feed_forward, ops.linear(normed, rows.feed_forward.gate_up));
  if (rows.experts.shared_gate >= 0)
    shared = ops.gate(shared, ops.linear(normed, {rows.experts.shared_gate, 1}));
  return ops.add(y_ND, scaled(shared));
}

/// Of a layer with experts: h + experts(norm(h)), h = x + attention.
template <typename Values>
typename Values::Tensor expert_half(BasicOps<Values>& ops, const Architecture& a,
                                    const BlockRows& rows, const typename Values::Tensor& x_ND,
                                    const typename Values::Tensor& attention,
                                    const typename Values::Sequence& sequence) {
  const auto [h_ND, normed] = ops.add_norm(attention, x_ND, norm_of(a, rows.feed_forward_norm));
  return add_experts(ops, a, rows, h_ND, normed, sequence);
}

/// h + norm(norm(dense(norm(h))) + norm(experts(norm(h)))), where the router reads norm(h) /
/// sqrt(D) with a norm of its own. Source: Google 2026 (Gemma 4 26B-A4B).
template <typename Values>
typename Values::Tensor add_experts_beside_dense(BasicOps<Values>& ops, const Architecture& a,
                                                 const BlockRows& rows,
                                                 const typename Values::Tensor& h_ND,
                                                 const typename Values::Sequence& sequence) {
  const ExpertRows& of = rows.experts;
  const FeedForwardRows& part = rows.feed_forward;
  const auto gate_up = ops.norm_linear(h_ND, norm_of(a, rows.feed_forward_norm), part.gate_up);
  const auto dense =
      ops.norm(activated_half(ops, a, part, gate_up), norm_of(a, of.beside_added_norm));
  const auto routed = ops.scale(ops.norm(h_ND, norm_of(a, of.router_norm)),
                                1 / std::sqrt(static_cast<double>(a.d_model)));
  const auto chosen =
      ops.experts(ops.norm(h_ND, norm_of(a, of.norm)), routed, of, a.experts, sequence);
  const auto both = ops.add(dense, ops.norm(chosen, norm_of(a, of.added_norm)));
  return ops.add(h_ND, added(ops, a, both, -1, rows.feed_forward_added_norm));
}

/// y = x + half(norm(x)), of a layer that has one half alone. Source: NVIDIA 2025 (Nemotron-H,
/// arXiv 2504.03624).
template <typename Values>
typename Values::Tensor single_block(BasicOps<Values>& ops, const Architecture& a,
                                     const BlockRows& rows, const typename Values::Tensor& x_ND,
                                     const typename Values::Sequence& sequence,
                                     std::int64_t i_layer, Sides<typename Values::Tensor>& sides) {
  const Layer layer = a.layer(i_layer);
  if (layer.has_attention_half)
    return ops.add(x_ND, attention_half(ops, a, rows, x_ND, sequence, i_layer, sides));
  const Norm norm = norm_of(a, rows.feed_forward_norm);
  if (layer.has_experts) return add_experts(ops, a, rows, x_ND, ops.norm(x_ND, norm), sequence);
  const auto gate_up = ops.norm_linear(x_ND, norm, rows.feed_forward.gate_up);
  return ops.add(x_ND, activated_half(ops, a, rows.feed_forward, gate_up));
}

/// y = x + attention(norm(x)) + feed_forward(norm(x)), with one norm or two. Source: Wang &
/// Komatsuzaki 2021 (GPT-J).
template <typename Values>
typename Values::Tensor parallel_block(BasicOps<Values>& ops, const Architecture& a,
                                       const BlockRows& rows, const typename Values::Tensor& x_ND,
                                       const typename Values::Sequence& sequence,
                                       std::int64_t i_layer,
                                       Sides<typename Values::Tensor>& sides) {
  const auto normed = ops.norm(x_ND, norm_of(a, rows.attention_norm));
  const auto attention =
      attend(ops, a, rows, ops.linear(normed, rows.qkv), sequence, i_layer, sides);
  const FeedForwardRows& part = rows.feed_forward;
  const auto gate_up =
      a.shares_norm ? ops.linear(normed, part.gate_up)
                    : ops.norm_linear(x_ND, norm_of(a, rows.feed_forward_norm), part.gate_up);
  return ops.add(ops.add(x_ND, attention), activated_half(ops, a, part, gate_up));
}

/// h = x + attention(norm(x)); y = h + feed_forward(norm(h)); or with the norms behind, or around.
/// x_ND -> y_ND. Source: Touvron et al. 2023 (arXiv 2302.13971); norms behind: OLMo et al. 2024
/// (arXiv 2501.00656).
template <typename Values>
typename Values::Tensor two_halves(BasicOps<Values>& ops, const Architecture& a,
                                   const BlockRows& rows, const typename Values::Tensor& x_ND,
                                   const typename Values::Sequence& sequence, std::int64_t i_layer,
                                   Sides<typename Values::Tensor>& sides) {
  if (a.is_parallel) return parallel_block(ops, a, rows, x_ND, sequence, i_layer, sides);
  if (!a.layer(i_layer).has_both_halves())
    return single_block(ops, a, rows, x_ND, sequence, i_layer, sides);
  const auto attention = attention_half(ops, a, rows, x_ND, sequence, i_layer, sides);
  if (a.layer(i_layer).has_experts && a.experts.are_beside_dense)
    return add_experts_beside_dense(ops, a, rows, ops.add(attention, x_ND), sequence);
  if (a.layer(i_layer).has_experts) return expert_half(ops, a, rows, x_ND, attention, sequence);
  const FeedForwardRows& part = rows.feed_forward;
  const auto finish = [&](const auto& h_ND, const auto& gate_up) {
    return ops.add(h_ND, added(ops, a, activated_half(ops, a, part, gate_up), -1,
                               rows.feed_forward_added_norm));
  };
  if (!rows.feed_forward_norm.exist()) {
    const auto h_ND = ops.add(attention, x_ND);
    return finish(h_ND, ops.linear(h_ND, part.gate_up));
  }
  const auto [h_ND, gate_up] =
      ops.add_norm_linear(attention, x_ND, norm_of(a, rows.feed_forward_norm), part.gate_up);
  return finish(h_ND, gate_up);
}

/// The inputs of all layers [N, L P], of what the first block reads and of what was looked up for
/// its tokens.
template <typename Values>
typename Values::Tensor all_layer_inputs(BasicOps<Values>& ops, const Architecture& a,
                                         const LayerInputRows& rows,
                                         const typename Values::Tensor& x_ND,
                                         const typename Values::Tensor& looked_up) {
  const AttentionShape layers{.num_heads = a.num_layers, .head_size = a.layer_input_size};
  // The product is divided by the root of D, which a norm sees in its epsilon alone.
  Norm norm = norm_of(a, rows.projection_norm);
  norm.eps *= static_cast<double>(a.d_model);
  const auto read = ops.head_norm(ops.linear(x_ND, {rows.projection, 1}), layers, {norm, {}});
  const double scale = std::sqrt(static_cast<double>(a.layer_input_size));
  return ops.scale(ops.add(read, ops.scale(looked_up, scale)), std::sqrt(0.5));
}

/// x + norm(out(activated(gate(x)) * the layer's input)).
template <typename Values>
typename Values::Tensor add_layer_input(BasicOps<Values>& ops, const Architecture& a,
                                        const LayerInputRows& rows,
                                        const typename Values::Tensor& x_ND,
                                        const typename Values::Tensor& input_NP) {
  const auto gate_up = ops.join(ops.linear(x_ND, {rows.gate, 1}), input_NP);
  const auto y_ND = ops.activated_linear(gate_up, a.activation, {-1, 0}, {rows.out, 1});
  return ops.add(x_ND, ops.norm(y_ND, norm_of(a, rows.added_norm)));
}

/// A block with what comes before the first one and behind each: read_ND -> y_ND.
template <typename Values>
typename Values::Tensor decoder_block(BasicOps<Values>& ops, const Architecture& a,
                                      const BlockRows& rows, const typename Values::Tensor& read_ND,
                                      const typename Values::Sequence& sequence,
                                      std::int64_t i_layer, Sides<typename Values::Tensor>& sides) {
  const bool scales = i_layer == 0 && a.embedding_scale != 1;
  auto x_ND = scales ? ops.scale(read_ND, a.embedding_scale) : read_ND;
  if (rows.positions >= 0) x_ND = ops.add_positions(x_ND, rows.positions, sequence);
  auto layer_input = sides.read[Side::layer_inputs];
  if (sides.layout.written[Side::layer_inputs].exists()) {
    const auto all = all_layer_inputs(ops, a, rows.layer_input, x_ND, layer_input);
    sides.written[Side::layer_inputs] = all;
    layer_input = ops.first_channels(all, 1, a.layer_input_size);
  }
  auto y_ND = two_halves(ops, a, rows, x_ND, sequence, i_layer, sides);
  if (rows.layer_input.exist()) y_ND = add_layer_input(ops, a, rows.layer_input, y_ND, layer_input);
  return rows.scale < 0 ? y_ND : ops.scale_by(y_ND, rows.scale);
}

/// Of a model with nothing beside the stream.
template <typename Values>
typename Values::Tensor decoder_block(BasicOps<Values>& ops, const Architecture& a,
                                      const BlockRows& rows, const typename Values::Tensor& read_ND,
                                      const typename Values::Sequence& sequence,
                                      std::int64_t i_layer) {
  Sides<typename Values::Tensor> none;
  return decoder_block(ops, a, rows, read_ND, sequence, i_layer, none);
}

/// What the head reads of the last block's output.
template <typename Values>
typename Values::Tensor final_norm(BasicOps<Values>& ops, const Architecture& a,
                                   const NormRows& rows, const typename Values::Tensor& x_ND) {
  const auto normed = ops.norm(x_ND, norm_of(a, rows));
  return a.head_scale == 1 ? normed : ops.scale(normed, a.head_scale);
}

}  // namespace finetune::model
