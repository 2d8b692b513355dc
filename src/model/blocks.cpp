// SPDX-License-Identifier: Apache-2.0
#include "model/blocks.hpp"

namespace finetune::model {

at::Tensor pre_norm_block(Ops& ops, const Architecture& architecture, const BlockRows& rows,
                          const at::Tensor& x_ND, const Sequence& sequence, std::int64_t i_layer) {
  const AttentionShape heads{architecture.num_heads, architecture.num_kv_heads,
                             architecture.head_size};
  const double eps = architecture.norm_eps;
  const at::Tensor qkv = ops.norm_linear(x_ND, rows.attention_norm, rows.qkv, eps);
  const at::Tensor attended = ops.attention(qkv, heads, sequence, i_layer);
  const at::Tensor attention = ops.linear(attended, {rows.attention_out, 1});
  const auto [h_ND, gate_up] =
      ops.add_norm_linear(attention, x_ND, rows.feed_forward_norm, rows.gate_up, eps);
  return h_ND + ops.swiglu_linear(gate_up, {rows.down, 1});
}

}  // namespace finetune::model
