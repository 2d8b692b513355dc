// SPDX-License-Identifier: Apache-2.0
// gpt-oss: sinks, every second layer with a window, and experts with biases whose SwiGLU is
// clamped.
#include "models/gpt/gpt.hpp"

#include "model/config_json.hpp"
#include "model/decoder_family.hpp"

namespace finetune::models::gpt {
namespace {

using model::Architecture;
using model::ConfigReader;

void read_experts(const ConfigReader& reader, Architecture& a) {
  reader.require_text("hidden_act", "silu", {"silu"});
  model::Experts& experts = a.experts;
  experts.num = reader.size("num_local_experts", 128);
  experts.top_k = reader.size("num_experts_per_tok", 4);
  experts.d_ff = a.d_ff;
  experts.has_biases = true;
  experts.activation = {.function = model::Activation::Function::clamped,
                        .takes_turns = true,
                        .slope = model::read_factor(reader, "swiglu_alpha", 1.702),
                        .limit = model::read_factor(reader, "swiglu_limit", 7)};
  experts.balance = model::read_balance(reader);
  if (experts.top_k > experts.num)
    reader.fail("num_experts_per_tok", "exceeds num_local_experts", "a token takes each once");
}

Architecture read(const core::Json& config, const std::string& where) {
  const core::Json whole = model::with_rope(config, {{"rope_type", "yarn"},
                                                     {"factor", 32.0},
                                                     {"truncate", false},
                                                     {"original_max_position_embeddings", 4096}});
  const ConfigReader reader(whole, where);
  Architecture a;
  a.rope_theta = 150000;
  model::read_decoder(reader, a, {.head_size = 64, .num_kv_heads = 8, .norm_eps = 1e-5});
  a.qkv_bias = a.attention_out_bias = reader.boolean("attention_bias", true);
  a.has_sinks = true;
  a.layers.resize(static_cast<std::size_t>(a.num_layers), {.has_experts = true});
  model::read_windows(reader, 2, 128, a);
  read_experts(reader, a);
  // Published files have no word of it: what is not in few bits is in this.
  if (!reader.has("dtype") && !reader.has("torch_dtype")) a.file_dtype = core::DType::bf16;
  return a;
}

model::TensorNames names() {
  model::TensorNames names;
  names.router = "mlp.router";
  names.fused_gate_up = "mlp.experts.gate_up_proj";
  names.fused_down = "mlp.experts.down_proj";
  return names;
}

}  // namespace

model::ModelFamily gpt_oss() {
  return model::decoder_family<names>("gpt_oss", read);
}

}  // namespace finetune::models::gpt
