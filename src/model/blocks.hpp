#pragma once
// SPDX-License-Identifier: Apache-2.0
// A transformer block and a decoder of them, put together from rows of a parameter table, for
// families to use.

#include <memory>
#include <vector>

#include "model/architecture.hpp"
#include "model/family.hpp"
#include "model/ops.hpp"

namespace finetune::model {

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

/// What block `i_layer` attends with.
AttentionShape attention_shape(const Architecture& architecture, std::int64_t i_layer);

/// h = x + attention(norm(x)); y = h + feed_forward(norm(h)). x_ND -> y_ND.
/// Source: Touvron et al. 2023 (arXiv 2302.13971).
at::Tensor pre_norm_block(Ops& ops, const Architecture& architecture, const BlockRows& rows,
                          const at::Tensor& x_ND, const Sequence& sequence, std::int64_t i_layer);

/// Such blocks between an embedding and a normed head.
std::unique_ptr<Model> make_decoder(const Architecture& architecture, const DecoderRows& rows);

}  // namespace finetune::model
