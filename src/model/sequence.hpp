#pragma once
// SPDX-License-Identifier: Apache-2.0
// What attention must know about the tokens of a pass: shape, positions, rotary tables, cache.

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

namespace finetune::model {

/// [positions, turned channels / 2] fp32 each.
struct RotaryTables {
  at::Tensor cos, sin;
};

/// Keys and values of the earlier tokens of a text, for generation.
struct KvCache {
  /// A layer's [capacity, 2 * num_kv_heads * head_size], keys first; grown by the attention op.
  std::vector<at::Tensor> layers;
  std::int64_t length = 0;  ///< tokens already seen; advanced by the caller after a pass
};

/// Consecutive tokens of a pass that may attend to each other: a sample, or padding, which no one
/// looks at.
struct Stretch {
  std::int64_t begin = 0;
  std::int64_t length = 0;
  bool is_padding = false;
};

/// The load-balancing term of a pass through layers with experts.
struct Balance {
  double scale = 0;     ///< factor of its gradient, for a term summed over tokens and layers
  at::Tensor sample_N;  ///< [N] int64: which sample a token is of; padding: `num_samples`
  std::int64_t num_samples = 0;
  at::Tensor sum;  ///< fp64 scalar: of all tokens and layers that backward has passed
  /// [E] fp32: how often tokens of all samples and layers chose each expert, counted in forward.
  /// Defined: this is the load of every token, as transformers has it; else that of its sample.
  at::Tensor choices_E;
  double num_choosing = 0;  ///< tokens times layers that choose
  bool is_counting = true;  ///< false once all layers have chosen: backward may compute them again
  /// Sums fp32 terms in place over the ranks that share the tokens (and each choose for their own);
  /// none: this rank has all of them. Collective on those ranks.
  std::function<void(const at::Tensor& terms)> sum_over_ranks = {};
};

/// Where the stretches of a pass begin, as GPUs' kernels take it.
struct Segments {
  at::Tensor begins;         ///< [number + 1] int32, on the device; the last is the end
  std::int64_t longest = 0;  ///< tokens
};

class ContextLayout;

/// The tensors are where the activations are.
struct Sequence {
  std::int64_t batch = 1;   ///< B
  std::int64_t length = 0;  ///< L
  at::Tensor positions;     ///< [N] int64
  RotaryTables tables;
  RotaryTables window_tables = {};    ///< of layers with a window, where they differ
  std::vector<KvCache*> caches = {};  ///< of each stretch the text that it continues; else empty
  std::int64_t first_position = 0;    ///< of the tables' first row
  /// Cover all B L tokens in order; empty: every row is one.
  std::vector<Stretch> stretches;
  Balance* balance = nullptr;  ///< null: no such term
  /// Ranks share the tokens: activations and positions are those of this rank's N, all else is of
  /// the B L of the pass. Null: N = B L.
  std::shared_ptr<const ContextLayout> context = {};
  /// By the chunk that layers cut stretches into (0: none): found by the first layer that asks.
  std::shared_ptr<std::map<std::int64_t, Segments>> segments =
      std::make_shared<std::map<std::int64_t, Segments>>();
};

}  // namespace finetune::model
