#pragma once
// SPDX-License-Identifier: Apache-2.0
// The numbers that say what a model is, whatever family it belongs to.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "core/dtype.hpp"
#include "model/outputs.hpp"

namespace finetune::model {

/// How rotary frequencies are stretched for long contexts.
struct RopeScaling {
  enum class Kind { none, linear, llama3, yarn, longrope, proportional };
  Kind kind = Kind::none;
  double factor = 1;
  double low_freq_factor = 1;   ///< llama3: wavelengths above original / low are divided by factor
  double high_freq_factor = 4;  ///< llama3: wavelengths below original / high stay
  /// llama3, yarn: context the model was first trained on.
  std::int64_t original_max_positions = 8192;
  double beta_fast = 32;     ///< yarn: with so many turns over that context, frequencies stay
  double beta_slow = 1;      ///< yarn: with fewer than these, they are divided by factor
  bool is_truncated = true;  ///< yarn: the bounds between are whole pairs of channels
  /// proportional: so many pairs of channels turn, as a part of all, as fast as they would anyway.
  double turned_part = 1;
  /// longrope: each pair of channels is divided by its own.
  std::vector<double> factors = {};
  double amplitude = 1;    ///< of turned queries and keys
  double score_scale = 1;  ///< yarn: of attention with latents, on top of its scale
};

/// Angles by position.
struct Positions {
  double theta = 10000;
  RopeScaling scaling = {};
};

/// How a head's channels are paired for rotary positions.
enum class Rotary {
  none,    ///< no positions at all
  halves,  ///< channel i with i + K / 2
  pairs,   ///< channel 2 i with 2 i + 1
};

/// Norm of queries and keys before positions.
enum class HeadNorm {
  none,
  weighted,    ///< each head, with a weight a channel
  weightless,  ///< each head, only divided by the root mean square
  together,    ///< all heads as one vector, with a weight a channel
};

/// What the norms of one model have in common.
struct NormKind {
  bool is_centred = false;   ///< the mean is taken off first: LayerNorm; else RMSNorm
  bool has_bias = false;     ///< but norms of heads
  double weight_offset = 0;  ///< what files have is the weights less this
};

/// Between the products of a feed-forward part.
struct Activation {
  /// `xielu` has numbers of its own in every layer. Source: Huang et al. 2024 (arXiv 2411.13010).
  /// `clamped`: g sigmoid(slope g) (u + 1), gate g up to the limit, u within plus and minus it; of
  /// experts alone. Source: OpenAI 2025, gpt-oss (arXiv 2508.10925).
  enum class Function { silu, gelu, gelu_tanh, relu_squared, xielu, clamped };
  Function function = Function::silu;
  bool is_gated = true;  ///< times a second product of the same input
  bool takes_turns =
      false;         ///< a channel of the gate, then its own of the other; else all gates first
  double slope = 1;  ///< of `clamped`
  double limit = 0;  ///< of `clamped`

  bool is_swiglu() const { return function == Function::silu && is_gated; }
};

/// Where a block has its norms.
enum class Norms {
  before,  ///< of what attention and feed-forward read
  after,   ///< of what they add
  around,  ///< both
};

/// What layers of one model may differ in.
struct Layer {
  bool has_experts = false;
  Rotary rotary = Rotary::halves;
  HeadNorm head_norm = HeadNorm::none;
  bool turns_before_norm = false;  ///< positions come before the norms of heads, not after
  std::int64_t window = 0;         ///< a token sees itself and the window - 1 before it; 0: all
  std::int64_t chunk = 0;          ///< a token sees its own chunk of positions only; 0: all
  bool tunes_temperature = false;
  bool has_delta_rule = false;    ///< in attention's place
  bool has_state_space = false;   ///< in attention's place
  std::int64_t head_size = 0;     ///< where it is not the model's
  std::int64_t num_kv_heads = 0;  ///< where it is not the model's
  bool reads_keys = false;        ///< values are the keys before their norm
  std::int64_t keys_of = -1;      ///< an earlier layer whose keys and values are read; -1: its own
  std::int64_t d_ff = 0;          ///< where it is not the model's
  /// Which halves there are: attention or what is in its place, and feed-forward or experts. A
  /// layer has one of them at least.
  bool has_attention_half = true;
  bool has_feed_forward_half = true;

  bool remembers() const { return has_delta_rule || has_state_space; }
  bool has_both_halves() const { return has_attention_half && has_feed_forward_half; }
};

/// Heads of layers that remember by the gated delta rule: a matrix a value head, whatever was read.
/// Source: Yang et al. 2024 (arXiv 2412.06464).
struct DeltaHeads {
  std::int64_t num_keys = 0;        ///< Hk
  std::int64_t values_per_key = 1;  ///< R
  std::int64_t key_size = 0;        ///< K of these layers
  std::int64_t value_size = 0;      ///< V
  std::int64_t taps = 1;            ///< tokens that a channel's convolution sees
  /// Matrices have the rows of one key head after those of another; else all queries come first.
  bool is_by_key_head = false;

  std::int64_t num_values() const { return num_keys * values_per_key; }
  std::int64_t channels() const { return 2 * num_keys * key_size + num_values() * value_size; }
};

/// Heads of layers with a state space (Mamba 2): a matrix a head. Groups of neighbouring heads
/// share what writes to them and what reads them. Source: Dao & Gu 2024 (arXiv 2405.21060).
struct StateHeads {
  std::int64_t num_groups = 0;       ///< G
  std::int64_t heads_per_group = 1;  ///< R
  std::int64_t head_size = 0;        ///< K of these layers
  std::int64_t state_size = 0;       ///< S
  std::int64_t taps = 1;             ///< tokens that a channel's convolution sees
  double least_step = 0;
  double most_step = std::numeric_limits<double>::infinity();

  std::int64_t num_heads() const { return num_groups * heads_per_group; }
  std::int64_t width() const { return num_heads() * head_size; }
  std::int64_t channels() const { return width() + 2 * num_groups * state_size; }
};

/// Feed-forward parts of which each token takes a few.
/// Source: Shazeer et al. 2017 (arXiv 1701.06538), Fedus et al. 2021 (arXiv 2101.03961).
struct Experts {
  std::int64_t num = 0;       ///< E
  std::int64_t top_k = 0;     ///< taken by a token
  std::int64_t d_ff = 0;      ///< F of one expert
  std::int64_t d_shared = 0;  ///< F of the expert that every token takes in addition; 0: none
  bool gates_shared = false;  ///< what that one gives is times a sigmoid of the token
  bool normalizes = true;     ///< the weights of the chosen ones sum to 1
  /// Scores are sigmoids of the router's logits, each by itself; else their softmax.
  bool scores_apart = false;
  /// Experts are chosen by scores to which each adds a constant, which their weights do not have.
  /// Source: Wang et al. 2024 (arXiv 2408.15664).
  bool corrects_choice = false;
  /// Experts are in so many groups of the same size, of which a token takes experts of
  /// `top_k_groups` alone: those whose best `summed_of_group` sum to the most. Source: DeepSeek-AI
  /// 2024 (DeepSeek-V3, arXiv 2412.19437).
  std::int64_t num_groups = 1;
  std::int64_t top_k_groups = 1;
  std::int64_t summed_of_group = 2;
  double weight_scale = 1;  ///< what weights are multiplied by, at last
  /// The weight is a sigmoid and goes on the expert's input, not a softmax on its output.
  bool scales_input = false;
  /// The layer has a dense part of Architecture::d_ff as well; what both add is normed, each by
  /// itself and their sum, and the router reads the block's own stream, normed by itself.
  bool are_beside_dense = false;
  bool has_biases = false;  ///< so do the router, gate and up, and down
  Activation activation = {};
  double balance = 0;  ///< coefficient of the load-balancing term of the loss

  /// Channels of the first product of one with `width`.
  std::int64_t inner(std::int64_t width) const { return (activation.is_gated ? 2 : 1) * width; }
};

/// Attention whose keys and values of all heads are products of one normed vector a token, the
/// latent; next to it the channels of a key that turn, which all heads share. A query head has
/// channels that do not turn, then those that do (Architecture::rotary_size).
/// Source: DeepSeek-AI 2024 (DeepSeek-V2, arXiv 2405.04434).
struct Latents {
  std::int64_t d_key_value = 0;  ///< channels of the latent; 0: there is none
  std::int64_t d_query = 0;      ///< of the one that queries are made of; 0: of the block's input
  std::int64_t unturned = 0;     ///< channels of a query or key head that do not turn
  std::int64_t value_size = 0;   ///< channels of a head's values
  double norm_eps = 1e-6;        ///< of the latents' norms

  bool exist() const { return d_key_value > 0; }
};

/// Queries far into a text grow: 1 + scale log(1 + floor((position + first) / floor)).
/// Source: Nakanishi 2025 (arXiv 2501.19399), as published with Llama 4.
struct Temperature {
  double scale = 0;
  double floor = 8192;
  double first = 1;
};

/// A decoder-only transformer. Letters as in the design: V vocabulary, D model, H heads, K head
/// size, F feed-forward.
struct Architecture {
  std::string family;
  std::int64_t num_layers = 0;
  std::int64_t vocab_size = 0;    ///< V, rows of the embedding
  std::int64_t d_model = 0;       ///< D
  std::int64_t num_heads = 0;     ///< H
  std::int64_t num_kv_heads = 0;  ///< heads of keys and values; divides num_heads
  /// K, the largest of any layer. Of latents: of queries and keys or of values, whichever are more;
  /// the others end in zeros.
  std::int64_t head_size = 0;
  std::int64_t d_ff = 0;  ///< F
  std::int64_t max_positions = 0;
  /// Each position has a row of numbers that is added to what the first block reads, max_positions
  /// rows.
  bool learns_positions = false;
  double norm_eps = 1e-5;
  double rope_theta = 10000;
  RopeScaling rope_scaling;
  std::optional<Positions> window_positions;  ///< of layers with a window, where they differ
  std::int64_t rotary_size = 0;  ///< so many channels of a head turn, the first; 0: all
  Norms norms = Norms::before;
  NormKind norm_kind = {};
  Activation activation = {};
  /// Attention and feed-forward read the block's input, not one what the other has added to;
  /// where `shares_norm`, through the same norm.
  bool is_parallel = false;
  bool shares_norm = false;
  bool qkv_bias = false;
  /// One product gives of each key head its queries, its key and its value; else all queries come
  /// first.
  bool qkv_by_key_head = false;
  bool norms_values = false;  ///< each head's, only divided by the root mean square
  /// Each layer has an input of its own, of so many channels, by token and by what the first block
  /// reads: activations of the block's output are multiplied by it and added. 0: there is none.
  /// Source: Google 2025, Gemma 3n.
  std::int64_t layer_input_size = 0;
  /// What a block gives is multiplied by a number of its own, which is not trained.
  bool scales_blocks = false;
  /// What attention gives is times sigmoids of a second part of the queries' product, which lies
  /// behind each head's query.
  bool gates_attention = false;
  bool attention_out_bias = false;
  /// Each head has a logit that takes part in its softmax, and no value. Source: Xiao et al. 2023
  /// (arXiv 2309.17453), as published with gpt-oss.
  bool has_sinks = false;
  bool feed_forward_bias = false;  ///< of layers without experts
  double embedding_scale = 1;      ///< of what the first block reads
  double residual_scale = 1;       ///< of what attention and feed-forward add
  double head_scale = 1;           ///< of what the head reads
  double logit_softcap = 0;        ///< c of logits c tanh(x / c); 0: none
  double score_softcap = 0;        ///< the same of attention's scores
  bool tied_embeddings = false;
  Outputs outputs;  ///< of the head
  Experts experts;
  Latents latents;
  Temperature temperature;
  DeltaHeads delta;
  StateHeads states;
  std::vector<Layer> layers;                  ///< one each, or empty: all are `Layer{}`
  double init_std = 0.02;                     ///< of weights made from random numbers
  core::DType file_dtype = core::DType::f32;  ///< of an export when the source files do not tell

  std::int64_t num_layers_with_experts() const {
    return std::count_if(layers.begin(), layers.end(),
                         [](const Layer& layer) { return layer.has_experts; });
  }
  /// Rows of the head, if that is not the embedding.
  std::int64_t num_head_rows() const { return outputs.are_of_texts() ? outputs.num : vocab_size; }
  Positions positions() const { return {rope_theta, rope_scaling}; }
  /// Channels of a query head that a product gives.
  std::int64_t query_size() const {
    return latents.exist() ? latents.unturned + rotary_size : head_size;
  }
  /// Channels of a head that the product behind attention reads.
  std::int64_t value_size() const { return latents.exist() ? latents.value_size : head_size; }
  std::int64_t turned_channels() const { return rotary_size > 0 ? rotary_size : head_size; }
  Layer layer(std::int64_t i) const {
    return layers.empty() ? Layer{} : layers[static_cast<std::size_t>(i)];
  }
  std::int64_t head_size_of(const Layer& layer) const {
    return layer.head_size > 0 ? layer.head_size : head_size;
  }
  std::int64_t num_kv_heads_of(const Layer& layer) const {
    return layer.num_kv_heads > 0 ? layer.num_kv_heads : num_kv_heads;
  }
  std::int64_t d_ff_of(const Layer& layer) const { return layer.d_ff > 0 ? layer.d_ff : d_ff; }
  /// K of layers with a window, which is the same in all of them.
  std::int64_t window_head_size() const {
    const auto found = std::find_if(layers.begin(), layers.end(),
                                    [](const Layer& layer) { return layer.window > 0; });
    return found == layers.end() ? head_size : head_size_of(*found);
  }
};

}  // namespace finetune::model
