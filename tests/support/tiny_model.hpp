#pragma once
// SPDX-License-Identifier: Apache-2.0
// Models of two blocks and odd sizes with random weights, for the tests of passes.

#include "data/steps/stream.hpp"
#include "models/gpt/gpt.hpp"
#include "models/llama/llama4.hpp"
#include "models/nemotron/nemotron.hpp"
#include "models/qwen/qwen.hpp"
#include "support/architecture.hpp"
#include "support/model.hpp"

namespace finetune::tests {

enum class TinyKind {
  own_head,
  tied,
  experts,        ///< the first layer sees a window, the second has experts; heads are normed
  fused_experts,  ///< the second layer has experts in one tensor, and one that all tokens pass
  sinks,          ///< heads have sinks, experts biases, and the first layer a window
  memory,         ///< the first layer remembers, the second's attention has gates
  mixers,         ///< a state space alone, then experts without a gate
  latents,        ///< queries, keys and values are made of latents; the second layer has experts
  chunks,         ///< the first layer sees chunks, the second tunes its queries
  wide,           ///< all sizes of matrices are multiples of 16
  wide_experts,   ///< and so are those of the second layer's experts
  wider           ///< multiples of 512, as products with a scale per block take them
};

/// Memories, states, and latents.
inline void add_mixers(TinyKind kind, model::Architecture& a) {
  using model::Layer;
  if (kind == TinyKind::memory) {
    a.layers = {{.head_norm = model::HeadNorm::weighted, .has_delta_rule = true}, normed_layer};
    a.gates_attention = true;
    a.norm_kind.weight_offset = 1;
    a.delta = {.num_keys = 2, .values_per_key = 2, .key_size = 4, .value_size = 3, .taps = 3};
  } else if (kind == TinyKind::mixers) {
    const Layer unturned{.rotary = model::Rotary::none};
    a.layers = {unturned, unturned};
    a.layers[0].has_state_space = a.layers[1].has_experts = true;
    a.layers[0].has_feed_forward_half = a.layers[1].has_attention_half = false;
    a.activation = {model::Activation::Function::relu_squared, /*is_gated=*/false};
    a.states = {.num_groups = 2, .heads_per_group = 2, .head_size = 3, .state_size = 4, .taps = 3};
    a.experts.d_shared = 6;
    a.experts.scores_apart = true;
    a.experts.activation = a.activation;
  } else if (kind == TinyKind::latents) {
    a.num_kv_heads = a.num_heads;
    a.head_size = 6;
    a.rotary_size = 2;
    a.latents = {.d_key_value = 5, .d_query = 6, .unturned = 4, .value_size = 3};
    a.rope_scaling.score_scale = 1.5;
    a.layers.assign(2, {.rotary = model::Rotary::pairs});
    a.layers[1].has_experts = true;
  }
}

inline model::Architecture tiny_architecture(TinyKind kind) {
  using enum TinyKind;
  const bool is_wide = kind == wide || kind == wide_experts;
  model::Architecture a = architecture_of(kind == wider ? Size{2, 512, 8, 8, 64, 512, 11, 24}
                                          : is_wide     ? Size{2, 16, 2, 1, 8, 16, 11, 24}
                                                        : Size{2, 8, 2, 1, 4, 6, 11, 24});
  a.tied_embeddings = kind == tied;
  a.init_std = kind == wider ? 0.06 : is_wide ? 0.35 : 0.7;
  a.experts = {.num = 4, .top_k = 2, .d_ff = 5};
  if (kind == experts || kind == wide_experts) {
    a.layers = {normed_layer, normed_expert_layer};
    if (kind == experts) a.layers[0].window = 3;
    a.experts = {.num = 4, .top_k = 2, .d_ff = kind == experts ? 5 : 32, .balance = 0.2};
  } else if (kind == fused_experts) {
    a.layers = {{}, expert_layer};
    a.experts = {.num = 4, .top_k = 1, .d_ff = 5, .d_shared = 6, .scales_input = true};
  } else if (kind == sinks) {
    a.layers = {{.has_experts = true, .window = 3}, expert_layer};
    add_sinks(a, 4, 5, 1);
  } else if (kind == chunks) {
    a.layers = {{.chunk = 3}, {.tunes_temperature = true}};
    a.temperature = {.scale = 0.5, .floor = 2};
  } else {
    add_mixers(kind, a);
  }
  if (a.num_layers_with_experts() == 0) a.experts = {};
  return a;
}

/// Qwen 3's table is Llama's where a layer has neither experts nor normed heads.
inline model::ModelFamily tiny_family(TinyKind kind = TinyKind::own_head) {
  return kind == TinyKind::fused_experts ? models::llama::llama4_text()
         : kind == TinyKind::sinks       ? models::gpt::gpt_oss()
         : kind == TinyKind::memory      ? models::qwen::qwen3_5_text()
         : kind == TinyKind::mixers      ? models::nemotron::nemotron_h()
                                         : models::qwen::qwen3_moe();
}

struct TinyModel : SplitModel {
  explicit TinyModel(const comm::Communicator& fsdp, TinyKind kind = TinyKind::own_head,
                     std::uint64_t seed = 1)
      : TinyModel(shard::one_copy(fsdp), in_fp32(), kind, seed) {}
  /// Of options `options` over `groups`.
  TinyModel(const shard::Groups& groups, const shard::Options& options,
            TinyKind kind = TinyKind::own_head, std::uint64_t seed = 1)
      : SplitModel(tiny_architecture(kind), tiny_family(kind),
                   plan::regroup(tiny_family(kind).describe(tiny_architecture(kind)),
                                 plan::Bucket::block, groups.part_place().ep),
                   groups, options) {
    base::randomize(architecture, whole, seed, shards);
  }
  static shard::Options in_fp32() { return computing_in(core::DType::f32); }
};

/// `count` samples in the order in which they are read, dealt to the ranks: each of `length(i)`
/// tokens, of which all but two are trained. `shift` makes others of them.
template <typename Length>
data::Dataset tiny_samples(std::int32_t count, const Length& length, std::int32_t shift = 0) {
  auto tokens = std::make_shared<std::vector<data::PackedToken>>();
  std::vector<data::Span> samples;
  for (std::int32_t i = 0; i < count; ++i) {
    samples.push_back({std::ssize(*tokens), length(i)});
    for (std::int32_t k = 0; k < length(i); ++k)
      tokens->emplace_back((3 * i + k * k + shift) % 11, k > 1);
  }
  return {tokens, samples};
}

/// A step of all `samples` as they are read, dealt to the ranks of `batch`; some may have none.
inline data::Stream in_one_step(data::Sequences samples, std::int64_t micro_batch,
                                const comm::Communicator& batch) {
  const std::int64_t count = samples.size();
  return {std::move(samples),
          {count, count, 1, data::SampleOrder::as_read},
          {micro_batch, batch.size(), batch.rank()},
          0};
}

/// Of samples each of which is a token longer than the one before.
inline data::StepData tiny_step(const comm::Communicator& batch, std::int32_t num_samples = 4,
                                std::int64_t micro_batch = 2) {
  return in_one_step(tiny_samples(num_samples, [](std::int32_t i) { return 4 + i; }), micro_batch,
                     batch)
      .step(0);
}

}  // namespace finetune::tests
