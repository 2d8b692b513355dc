#pragma once
// SPDX-License-Identifier: Apache-2.0
// A decoder of transformer blocks as rows of a parameter table, for families to use. Without
// libtorch, as model/family.hpp.

#include <cstdint>
#include <memory>
#include <vector>

#include "model/architecture.hpp"
#include "model/parameter_table.hpp"

namespace finetune::model {

class Model;
struct DeleteModel {
  void operator()(const Model* model) const;
};
using ModelPtr = std::unique_ptr<Model, DeleteModel>;

/// Rows of a layer's experts.
struct ExpertRows {
  int router = 0;    ///< [E, D]
  RowRange gate_up;  ///< of the first expert: two rows [F, D]; of all: one [E, D, 2 F]
  int down = 0;      ///< of the first expert [D, F]; of all [E, F, D]
  int stride = 0;    ///< from an expert's rows to the next one's; 0: one row holds all experts
};

/// A feed-forward part with gate and up next to each other.
struct FeedForwardRows {
  RowRange gate_up;
  int down = 0;
};

/// Rows of one block with fused neighbours: q, k, v and gate, up each lie next to each other.
/// -1: the model has no such row.
struct BlockRows {
  RowRange all = {};
  int attention_norm = 0;
  RowRange qkv = {};
  RowRange qkv_bias = {-1, 0};
  int query_norm = -1;
  int key_norm = -1;
  int attention_out = 0;
  int feed_forward_norm = 0;
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

/// Such blocks between an embedding and a normed head.
ModelPtr make_decoder(const Architecture& architecture, const DecoderRows& rows);

}  // namespace finetune::model
