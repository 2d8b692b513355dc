#pragma once
// SPDX-License-Identifier: Apache-2.0
// Architectures of the sizes that a test wants; without tensors.

#include <cstdint>

#include "model/architecture.hpp"

namespace finetune::tests {

struct Size {
  std::int64_t layers, width, heads, kv_heads, head_size, d_ff, vocabulary;
  std::int64_t max_positions = 1 << 20;
};

inline model::Architecture architecture_of(const Size& size) {
  model::Architecture a;
  a.family = "llama";
  a.num_layers = size.layers;
  a.d_model = size.width;
  a.num_heads = size.heads;
  a.num_kv_heads = size.kv_heads;
  a.head_size = size.head_size;
  a.d_ff = size.d_ff;
  a.vocab_size = size.vocabulary;
  a.max_positions = size.max_positions;
  return a;
}

/// All layers of which are `layer`.
inline model::Architecture architecture_of(const Size& size, const model::Layer& layer) {
  model::Architecture a = architecture_of(size);
  a.layers.assign(static_cast<std::size_t>(size.layers), layer);
  return a;
}

/// Positions turn faster than usual, so that short texts show it.
inline model::Architecture rotary(const Size& size) {
  model::Architecture a = architecture_of(size);
  a.rope_theta = 100;
  return a;
}

inline constexpr model::Layer normed_layer{.head_norm = model::HeadNorm::weighted};
inline constexpr model::Layer expert_layer{.has_experts = true};
inline constexpr model::Layer normed_expert_layer{.has_experts = true,
                                                  .head_norm = model::HeadNorm::weighted};

/// As gpt-oss has them: sinks, biases, and experts with a clamped activation.
inline void add_sinks(model::Architecture& a, std::int64_t num, std::int64_t d_ff, double limit) {
  a.has_sinks = a.qkv_bias = a.attention_out_bias = true;
  a.experts = {.num = num,
               .top_k = 2,
               .d_ff = d_ff,
               .has_biases = true,
               .activation = {.function = model::Activation::Function::clamped,
                              .takes_turns = true,
                              .slope = 1.702,
                              .limit = limit}};
}

}  // namespace finetune::tests
