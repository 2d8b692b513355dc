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

/// Rows of a layer's experts.
struct ExpertRows {
  int router = 0;    ///< [E, D]
  RowRange gate_up;  ///< of the first expert: two rows [F, D]; of all: one [E, D, 2 F]
  int down = 0;      ///< of the first expert [D, F]; of all [E, F, D]
  int stride = 0;    ///< from an expert's rows to the next one's; 0: one row holds all experts
};

/// A feed-forward part with gate and up next to each other, or in one row [2 F, D].
struct FeedForwardRows {
  RowRange gate_up;
  int down = 0;
  RowRange gate_up_bias = {-1, 0};
  int down_bias = -1;
};

/// Rows of one block with fused neighbours: q, k, v and gate, up each lie next to each other.
/// -1: the model has no such row.
struct BlockRows {
  RowRange all = {};
  int attention_norm = -1;
  RowRange qkv = {};
  RowRange qkv_bias = {-1, 0};
  int query_norm = -1;
  int key_norm = -1;
  int attention_out = 0;
  int attention_out_bias = -1;
  int attention_added_norm = -1;  ///< of what attention adds
  int feed_forward_norm = -1;
  int feed_forward_added_norm = -1;
  FeedForwardRows feed_forward =
      {};  ///< of a layer without experts; else of the shared expert, if any
  ExpertRows experts = {};
};

struct DecoderRows {
  int embedding = 0;
  std::vector<BlockRows> blocks;
  int final_norm = 0;
  int head = 0;  ///< the embedding's if tied
};

}  // namespace finetune::model
