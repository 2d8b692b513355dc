#pragma once
// SPDX-License-Identifier: Apache-2.0
// Where the rows of a decoder lie in a parameter table: what a block reads, op by op.

#include <vector>

namespace finetune::model {

/// Rows [first, first + num): neighbours that one product may read as a single matrix, such as the
/// projections to queries, keys and values.
struct RowRange {
  int first = 0;
  int num = 1;
};

/// Rows of a norm. -1: there is none.
struct NormRows {
  int weight = -1;
  int bias = -1;

  bool exist() const { return weight >= 0; }
};

/// Rows of a layer's experts.
struct ExpertRows {
  int router = 0;             ///< [E, D]
  int router_bias = -1;       ///< [E]
  NormRows router_norm = {};  ///< of what the router reads, where experts are beside a dense part
  int scales = -1;            ///< [E]: what the weights of the chosen ones are multiplied by
  int correction = -1;        ///< [E], constant: what the choice adds to the scores
  RowRange gate_up;  ///< of the first expert: two rows [F, D], or one; of all: one [E, D, 2 F]
  int down = 0;      ///< of the first expert [D, F]; of all [E, F, D]
  /// What holds all experts has [E, 2 F, D] and [E, D, F], a matrix as others have it each.
  bool are_by_outputs = false;
  int gate_up_bias = -1;     ///< of all [E, 2 F]
  int down_bias = -1;        ///< of all [E, D]
  int shared_gate = -1;      ///< [1, D]
  NormRows norm = {};        ///< of what the experts read, where they are beside a dense part
  NormRows added_norm = {};  ///< of what they give
  NormRows beside_added_norm = {};  ///< and of what the dense part gives, before their sum's own
  int stride = 0;  ///< from an expert's rows to the next one's; 0: one row holds all experts
};

/// A feed-forward part with gate and up next to each other, or in one row [2 F, D]; or up alone.
struct FeedForwardRows {
  RowRange gate_up;
  int down = 0;
  RowRange gate_up_bias = {-1, 0};
  RowRange activation = {-1, 0};  ///< of xielu: alpha of positive and of negative inputs, beta, eps
  int down_bias = -1;
};

/// Rows of what remembers by the gated delta rule.
struct DeltaRows {
  RowRange inputs;     ///< of queries, keys, values, gates, rates and decays
  int taps = -1;       ///< [channels, 1, taps]
  int decay = 0;       ///< [value heads]
  int decay_bias = 0;  ///< [value heads]
  int norm = 0;        ///< [V]

  bool exists() const { return taps >= 0; }
};

/// Rows of a state space.
struct StateRows {
  RowRange inputs;    ///< of gates, values, what writes, what reads, and steps
  int taps = -1;      ///< [channels, 1, taps]
  int taps_bias = 0;  ///< [channels]
  int decay = 0;      ///< [heads]
  int step_bias = 0;  ///< [heads]
  int skip = 0;       ///< [heads]
  int norm = 0;       ///< [heads K]

  bool exists() const { return taps >= 0; }
};

/// Rows of what makes a layer's own input, and reads it.
struct LayerInputRows {
  int projection = -1;            ///< of the first block [L P, D]: to the inputs of all layers
  NormRows projection_norm = {};  ///< [P], of each layer's
  int gate = -1;                  ///< [P, D]
  int out = 0;                    ///< [D, P]
  NormRows added_norm = {};

  bool exist() const { return gate >= 0; }
};

/// Rows of one block with fused neighbours: q, k, v and gate, up each lie next to each other.
/// With latents (Architecture::latents) `qkv` are the products of the block's input: queries or
/// their latent, and the latent of keys and values with the channels that turn; the norms of
/// queries and keys are those of the latents.
/// -1: the model has no such row.
struct BlockRows {
  RowRange all = {};
  int positions = -1;  ///< [positions, D], of the first block (Architecture::learns_positions)
  NormRows attention_norm = {};
  RowRange qkv = {};
  RowRange qkv_bias = {-1, 0};
  NormRows query_norm = {};
  NormRows key_norm = {};
  int query_up = -1;      ///< [H query size, latent]
  int key_value_up = -1;  ///< [H (unturned + value size), latent], by heads
  int sinks = -1;         ///< [H]
  DeltaRows delta = {};   ///< of a layer that has it in attention's place, whose product is next
  StateRows state = {};   ///< the same
  int attention_out = 0;
  int attention_out_bias = -1;
  NormRows attention_added_norm = {};  ///< of what attention adds
  NormRows feed_forward_norm = {};
  NormRows feed_forward_added_norm = {};
  FeedForwardRows feed_forward =
      {};  ///< of a layer without experts; else of the shared expert, if any
  ExpertRows experts = {};
  LayerInputRows layer_input = {};
  int scale = -1;  ///< [1], constant: of what the block gives
};

struct DecoderRows {
  int embedding = 0;
  int layer_embedding = -1;  ///< [V, L P], looked up with it (Architecture::layer_input_size)
  std::vector<BlockRows> blocks;
  NormRows final_norm = {};
  bool hands_on = false;  ///< blocks read what others wrote beside the stream (model/sides.hpp)
  int head = 0;           ///< the embedding's if tied
};

}  // namespace finetune::model
