// SPDX-License-Identifier: Apache-2.0
#include "model/blocks.hpp"
#include "model/model.hpp"

#include <utility>

namespace finetune::model {
namespace {

at::Tensor attend(Ops& ops, const Architecture& a, const BlockRows& rows, const at::Tensor& x_ND,
                  const Sequence& sequence, std::int64_t i_layer) {
  const AttentionShape shape = attention_shape(a, i_layer);
  const Layer layer = a.layer(i_layer);
  at::Tensor qkv = ops.norm_linear(x_ND, rows.attention_norm, rows.qkv, a.norm_eps);
  if (rows.qkv_bias.num > 0) qkv = ops.add_bias(qkv, rows.qkv_bias);
  // A weightless norm of a head commutes with its rotation, so one place does for both kinds.
  if (layer.head_norm != HeadNorm::none)
    qkv = ops.head_norm(qkv, shape, rows.query_norm, rows.key_norm, a.norm_eps);
  if (layer.tunes_temperature) qkv = ops.tune_temperature(qkv, shape, sequence, a.temperature);
  return ops.linear(ops.attention(qkv, shape, sequence, i_layer), {rows.attention_out, 1});
}

class Decoder : public Model {
 public:
  Decoder(Architecture architecture, DecoderRows rows)
      : architecture_(std::move(architecture)), rows_(std::move(rows)) {}

  int embedding_row() const override { return rows_.embedding; }
  int final_norm_row() const override { return rows_.final_norm; }
  int head_row() const override { return rows_.head; }
  RowRange block_rows(std::int64_t i_layer) const override { return at(i_layer).all; }

  at::Tensor block(Ops& ops, std::int64_t i_layer, const at::Tensor& x_ND,
                   const Sequence& sequence) const override {
    return pre_norm_block(ops, architecture_, at(i_layer), x_ND, sequence, i_layer);
  }

  at::Tensor final_norm(Ops& ops, const at::Tensor& x_ND) const override {
    return ops.rms_norm(x_ND, rows_.final_norm, architecture_.norm_eps);
  }

 private:
  const BlockRows& at(std::int64_t i_layer) const {
    return rows_.blocks[static_cast<std::size_t>(i_layer)];
  }

  Architecture architecture_;
  DecoderRows rows_;
};

}  // namespace

AttentionShape attention_shape(const Architecture& a, std::int64_t i_layer) {
  const Layer layer = a.layer(i_layer);
  return {a.num_heads, a.num_kv_heads, a.head_size, layer.rotary, layer.window, layer.chunk};
}

at::Tensor pre_norm_block(Ops& ops, const Architecture& a, const BlockRows& rows,
                          const at::Tensor& x_ND, const Sequence& sequence, std::int64_t i_layer) {
  const at::Tensor attention = attend(ops, a, rows, x_ND, sequence, i_layer);
  const FeedForwardRows& plain = rows.feed_forward;
  if (!a.layer(i_layer).has_experts) {
    const auto [h_ND, gate_up] =
        ops.add_norm_linear(attention, x_ND, rows.feed_forward_norm, plain.gate_up, a.norm_eps);
    return h_ND + ops.swiglu_linear(gate_up, {plain.down, 1});
  }
  const auto [h_ND, normed] = ops.add_rms_norm(attention, x_ND, rows.feed_forward_norm, a.norm_eps);
  const at::Tensor y_ND = h_ND + ops.experts(normed, rows.experts, a.experts, sequence);
  if (a.experts.d_shared == 0) return y_ND;
  return y_ND + ops.swiglu_linear(ops.linear(normed, plain.gate_up), {plain.down, 1});
}

ModelPtr make_decoder(const Architecture& architecture, const DecoderRows& rows) {
  return ModelPtr(new Decoder(architecture, rows));
}

void DeleteModel::operator()(const Model* model) const {
  delete model;
}

}  // namespace finetune::model
