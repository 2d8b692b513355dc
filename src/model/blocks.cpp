// SPDX-License-Identifier: Apache-2.0
#include "model/blocks.hpp"

namespace finetune::model {

at::Tensor pre_norm_block(Ops& ops, const Architecture& architecture, const BlockRows& rows,
                          const at::Tensor& x_ND, const Sequence& sequence, std::int64_t i_layer) {
  const AttentionShape heads{architecture.num_heads, architecture.num_kv_heads,
                             architecture.head_size};
  const at::Tensor normed = ops.rms_norm(x_ND, rows.attention_norm, architecture.norm_eps);
  const at::Tensor attended = ops.attention(ops.linear(normed, rows.qkv), heads, sequence, i_layer);
  const at::Tensor attention = ops.linear(attended, {rows.attention_out, 1});
  const auto [h_ND, normed_h] =
      ops.add_rms_norm(attention, x_ND, rows.feed_forward_norm, architecture.norm_eps);
  const at::Tensor activated = ops.swiglu(ops.linear(normed_h, rows.gate_up));
  return h_ND + ops.linear(activated, {rows.down, 1});
}

}  // namespace finetune::model
