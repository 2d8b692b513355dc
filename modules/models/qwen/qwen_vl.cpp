// SPDX-License-Identifier: Apache-2.0
// Qwen 3 VL: what reads and writes text, which is Qwen 3. What it sees is not trained.
#include "model/decoder_family.hpp"
#include "model/whole_config.hpp"
#include "models/qwen/qwen.hpp"
#include "models/qwen/read.hpp"

namespace finetune::models::qwen {
namespace {

using model::Architecture;

Architecture read_vl(const core::Json& config, const std::string& where) {
  Architecture a;
  a.rope_theta = 500000;
  read_normed(model::text_config(config, where), {.head_size = 128, .num_kv_heads = 32}, a);
  model::read_ties_of_whole(config, where, /*of_class=*/false, a);
  return a;
}

Architecture read_vl_moe(const core::Json& config, const std::string& where) {
  const model::ConfigReader text = model::text_config(config, where);
  Architecture a;
  a.rope_theta = 500000;
  read_normed(text, {.num_kv_heads = 16}, a);
  read_routing(text, {.num = 60, .top_k = 4, .d_ff = 1408}, a);
  a.experts.normalizes = true;
  model::read_ties_of_whole(config, where, /*of_class=*/false, a);
  return a;
}

model::TensorNames vl_names() {
  model::TensorNames names = names_below("model.language_model.");
  names.fused_gate_up = "mlp.experts.gate_up_proj";
  names.fused_down = "mlp.experts.down_proj";
  names.foreign = {"model.visual."};
  return names;
}

}  // namespace

model::TensorNames names_below(const std::string& prefix) {
  model::TensorNames names;
  names.embedding = prefix + "embed_tokens";
  names.layers = prefix + "layers.";
  names.final_norm = prefix + "norm";
  return names;
}

model::ModelFamily qwen3_vl() {
  return model::decoder_family<vl_names>("qwen3_vl", read_vl);
}

model::ModelFamily qwen3_vl_moe() {
  return model::decoder_family<vl_names>("qwen3_vl_moe", read_vl_moe);
}

}  // namespace finetune::models::qwen
