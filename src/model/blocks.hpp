#pragma once
// SPDX-License-Identifier: Apache-2.0
// The two halves of a Llama-like transformer block, for families to compose.

#include "model/architecture.hpp"
#include "model/ops.hpp"

namespace finetune::model {

/// Rows of one block with fused neighbours: q, k, v and gate, up each lie next to each other.
struct BlockRows {
  int attention_norm = 0;
  RowRange qkv;
  int attention_out = 0;
  int feed_forward_norm = 0;
  RowRange gate_up;
  int down = 0;
};

/// h = x + attention(norm(x)); y = h + feed_forward(norm(h)). x_ND -> y_ND.
/// Source: Touvron et al. 2023 (arXiv 2302.13971).
at::Tensor pre_norm_block(Ops& ops, const Architecture& architecture, const BlockRows& rows,
                          const at::Tensor& x_ND, const Sequence& sequence, std::int64_t i_layer);

}  // namespace finetune::model
