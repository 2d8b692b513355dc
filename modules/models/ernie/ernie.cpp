// SPDX-License-Identifier: Apache-2.0
// ERNIE 4.5. Of experts, a softmax weighs them, and a constant each takes part in their choice.
#include "models/ernie/ernie.hpp"

#include "model/config_json.hpp"
#include "model/decoder_family.hpp"

namespace finetune::models::ernie {
namespace {

using model::Architecture;
using model::ConfigReader;

Architecture read(const ConfigReader& reader, const model::Unsaid& unsaid) {
  Architecture a;
  a.rope_theta = 500000;
  model::read_decoder(reader, a, unsaid);
  a.layers.assign(static_cast<std::size_t>(a.num_layers), {.rotary = model::Rotary::pairs});
  return a;
}

Architecture read_dense(const core::Json& config, const std::string& where) {
  const ConfigReader reader(config, where);
  Architecture a =
      read(reader, {.head_size = 128, .num_kv_heads = 2, .norm_eps = 1e-5, .is_tied = true});
  a.qkv_bias = a.attention_out_bias = a.feed_forward_bias = reader.boolean("use_bias", false);
  return a;
}

Architecture read_moe(const core::Json& config, const std::string& where) {
  const ConfigReader reader(config, where);
  Architecture a = read(reader, {.num_kv_heads = 4, .norm_eps = 1e-5, .is_tied = true});
  reader.require_false("use_bias");  // shared experts and the head would have them, too
  reader.require_text("moe_gate_act", "softmax", {"softmax"});
  if (!reader.boolean("moe_use_aux_free", true))
    reader.fail_unsupported("moe_use_aux_free", "is false",
                            "every expert of these models has a constant");
  a.experts.num = reader.size("moe_num_experts", 64);
  a.experts.top_k = reader.size("moe_k", 6);
  a.experts.d_ff = reader.size("moe_intermediate_size", 1536);
  if (reader.real("moe_num_shared_experts", 2) != 0)
    a.experts.d_shared = a.experts.d_ff * reader.size("moe_num_shared_experts", 2);
  a.experts.corrects_choice = true;
  a.experts.balance = model::read_balance(reader);
  if (a.experts.top_k > a.experts.num)
    reader.fail("moe_k", "exceeds moe_num_experts", "a token takes each once");
  const double first = reader.real("moe_layer_start_index", 1);
  const double last = reader.real("moe_layer_end_index", -1);  // which is the model's last
  const std::int64_t interval = reader.size("moe_layer_interval", 1);
  for (std::size_t i = 0; i < a.layers.size(); ++i) {
    const auto index = static_cast<double>(i);
    a.layers[i].has_experts = (static_cast<std::int64_t>(i) + 1) % interval == 0 &&
                              index >= first && (last == -1 || index <= last);
  }
  return a;
}

model::TensorNames names_of_moe() {
  model::TensorNames names;
  names.correction = "mlp.moe_statics.e_score_correction_bias";
  names.correction_is_matrix = true;
  names.shared_gate = "mlp.shared_experts.gate_proj";
  names.shared_up = "mlp.shared_experts.up_proj";
  names.shared_down = "mlp.shared_experts.down_proj";
  names.foreign = {"model.mtp_"};  // predicts more tokens at once
  return names;
}

}  // namespace

model::ModelFamily ernie4_5() {
  return model::decoder_family("ernie4_5", read_dense);
}

model::ModelFamily ernie4_5_moe() {
  return model::decoder_family<names_of_moe>("ernie4_5_moe", read_moe);
}

}  // namespace finetune::models::ernie
