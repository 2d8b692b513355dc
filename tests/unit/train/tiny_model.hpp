#pragma once
// SPDX-License-Identifier: Apache-2.0
// Models of two blocks and odd sizes with random weights, for the tests of passes.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/initial_weights.hpp"
#include "model/family.hpp"
#include "model/model.hpp"
#include "models/gpt/gpt.hpp"
#include "models/llama/llama4.hpp"
#include "models/nemotron/nemotron.hpp"
#include "models/qwen/qwen.hpp"
#include "plan/layout/bucket.hpp"
#include "shard/parallel_ops.hpp"
#include "support/ranks.hpp"
#include "train/step/passes.hpp"

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

inline model::Architecture tiny_architecture(TinyKind kind) {
  model::Architecture a;
  a.family = "llama";
  a.num_layers = 2;
  a.vocab_size = 11;
  a.d_model = 8;
  a.num_heads = 2;
  a.num_kv_heads = 1;
  a.head_size = 4;
  a.d_ff = 6;
  a.max_positions = 24;
  a.tied_embeddings = kind == TinyKind::tied;
  a.init_std = 0.7;
  if (kind == TinyKind::wide || kind == TinyKind::wide_experts) {
    a.d_model = a.d_ff = 16;
    a.head_size = 8;
    a.init_std = 0.35;
  }
  if (kind == TinyKind::wider) {
    a.d_model = a.d_ff = 512;
    a.num_heads = a.num_kv_heads = 8;
    a.head_size = 64;
    a.init_std = 0.06;
  }
  if (kind == TinyKind::wide_experts) {
    a.layers.resize(2);
    for (model::Layer& layer : a.layers)
      layer.head_norm = model::HeadNorm::weighted;
    a.layers[1].has_experts = true;
    a.experts = {.num = 4, .top_k = 2, .d_ff = 32, .balance = 0.2};
  }
  if (kind == TinyKind::fused_experts) {
    a.layers.resize(2);
    a.layers[1].has_experts = true;
    a.experts = {.num = 4, .top_k = 1, .d_ff = 5, .d_shared = 6, .scales_input = true};
  }
  if (kind == TinyKind::latents) {
    a.num_kv_heads = a.num_heads;
    a.head_size = 6;
    a.rotary_size = 2;
    a.latents = {.d_key_value = 5, .d_query = 6, .unturned = 4, .value_size = 3};
    a.rope_scaling.score_scale = 1.5;
    a.layers.resize(2, {.rotary = model::Rotary::pairs});
    a.layers[1].has_experts = true;
    a.experts = {.num = 4, .top_k = 2, .d_ff = 5};
  }
  if (kind == TinyKind::sinks) {
    a.layers.resize(2, {.has_experts = true});
    a.layers[0].window = 3;
    a.has_sinks = a.qkv_bias = a.attention_out_bias = true;
    a.experts = {.num = 4,
                 .top_k = 2,
                 .d_ff = 5,
                 .has_biases = true,
                 .activation = {.function = model::Activation::Function::clamped,
                                .takes_turns = true,
                                .slope = 1.702,
                                .limit = 1}};
  }
  if (kind == TinyKind::memory) {
    a.layers.resize(2, {.head_norm = model::HeadNorm::weighted});
    a.layers[0].has_delta_rule = true;
    a.gates_attention = true;
    a.norm_kind.weight_offset = 1;
    a.delta = {.num_keys = 2, .values_per_key = 2, .key_size = 4, .value_size = 3, .taps = 3};
  }
  if (kind == TinyKind::mixers) {
    a.layers.resize(2, {.rotary = model::Rotary::none});
    a.layers[0].has_state_space = a.layers[1].has_experts = true;
    a.layers[0].has_feed_forward_half = a.layers[1].has_attention_half = false;
    a.activation = {model::Activation::Function::relu_squared, /*is_gated=*/false};
    a.states = {.num_groups = 2, .heads_per_group = 2, .head_size = 3, .state_size = 4, .taps = 3};
    a.experts = {.num = 4,
                 .top_k = 2,
                 .d_ff = 5,
                 .d_shared = 6,
                 .scores_apart = true,
                 .activation = a.activation};
  }
  if (kind != TinyKind::experts && kind != TinyKind::chunks) return a;
  a.layers.resize(2);
  if (kind == TinyKind::chunks) {
    a.layers[0].chunk = 3;
    a.layers[1].tunes_temperature = true;
    a.temperature = {.scale = 0.5, .floor = 2};
    return a;
  }
  for (model::Layer& layer : a.layers)
    layer.head_norm = model::HeadNorm::weighted;
  a.layers[0].window = 3;
  a.layers[1].has_experts = true;
  a.experts = {.num = 4, .top_k = 2, .d_ff = 5, .balance = 0.2};
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

struct TinyModel {
  explicit TinyModel(const comm::Communicator& fsdp, TinyKind kind = TinyKind::own_head,
                     std::uint64_t seed = 1)
      : TinyModel(shard::one_copy(fsdp), in_fp32(), kind, seed) {}
  /// Of options `options` over `groups`.
  TinyModel(const shard::Groups& groups, const shard::Options& options,
            TinyKind kind = TinyKind::own_head, std::uint64_t seed = 1)
      : architecture(tiny_architecture(kind)),
        table(plan::regroup(
            model::part_of(tiny_family(kind).describe(architecture), groups.part_place()),
            plan::Bucket::block, groups.part_place().ep)),
        map(table, groups.fsdp->size(), {.ep = groups.part_place().ep}),
        model(tiny_family(kind).build(architecture)),
        shards(table, map, groups, options),
        own_ops(shard::make_ops(shards, model::Path::kernels, model::Recompute::nothing)),
        ops(*own_ops) {
    base::randomize(architecture, table, seed, shards);
  }
  TinyModel(const TinyModel&) = delete;
  TinyModel& operator=(const TinyModel&) = delete;

  static shard::Options in_fp32() {
    shard::Options options;
    options.numbers.compute = core::DType::f32;
    return options;
  }

  train::Engine engine() { return {architecture, *model, ops, shards}; }

  /// Calls f(row, element of the logical row, master weight, gradient sum) for this rank's
  /// elements; the gradient is 0 before the first pass.
  template <typename F>
  void for_each(const F& f) {
    shards.finish_gradients();
    for (int unit = 0; unit < shards.num_units(); ++unit) {
      const float* master = shards.master(unit).const_data_ptr<float>();
      const float* gradient = shards.gradient(unit).const_data_ptr<float>();
      for (const plan::ShardSlice& slice : map.slices(unit, shards.shard_of(unit))) {
        std::int64_t at = slice.shard_offset;
        model::for_each_run(table.row(slice.row), slice.tensor_offset, slice.count,
                            [&](std::int64_t first, std::int64_t count) {
                              for (std::int64_t i = 0; i < count; ++i, ++at)
                                f(slice.row, first + i, master[at], gradient[at]);
                            });
      }
    }
  }

  model::Architecture architecture;
  model::ParameterTable table;
  plan::ShardMap map;
  model::ModelPtr model;
  shard::ModelShards shards;
  std::unique_ptr<model::Ops> own_ops;
  model::Ops& ops;
};

/// That the gradients of a model of one rank are the slopes of `loss()` over every `stride`th
/// element of its shards, by central differences. Returns the largest slope.
template <typename Loss>
double expect_slopes(TinyModel& tiny, std::int64_t stride, const Loss& loss) {
  constexpr float step = 1e-2f;
  double largest = 0;
  for (int unit = 0; unit < tiny.shards.num_units(); ++unit) {
    tiny.shards.finish_gradients();
    const at::Tensor gradient = tiny.shards.gradient(unit).clone();
    float* master = tiny.shards.master(unit).data_ptr<float>();
    for (std::int64_t i = 0; i < gradient.numel(); i += stride) {
      const float before = master[i];
      const auto loss_at = [&](float value) {
        master[i] = value;
        tiny.shards.publish(unit);
        return loss();
      };
      const double slope = (loss_at(before + step) - loss_at(before - step)) / (2 * step);
      master[i] = before;
      tiny.shards.publish(unit);
      largest = std::max(largest, std::abs(slope));
      EXPECT_NEAR(gradient[i].item<float>(), slope, 5e-3 * std::max(1.0, std::abs(slope)))
          << tiny.map.units()[static_cast<std::size_t>(unit)].name << ", element " << i;
    }
  }
  return largest;
}

}  // namespace finetune::tests
