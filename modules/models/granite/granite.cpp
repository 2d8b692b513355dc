// SPDX-License-Identifier: Apache-2.0
// Granite: what blocks add, attention and logits are scaled. With experts, all in two tensors; some
// have one more, which every token takes.
#include "models/granite/granite.hpp"

#include "model/config_json.hpp"
#include "model/decoder_family.hpp"

namespace finetune::models::granite {
namespace {

using model::Architecture;
using model::ConfigReader;

Architecture read_scaled(const ConfigReader& reader) {
  Architecture a;
  model::read_decoder(reader, a);
  model::read_biases(reader, a);
  a.embedding_scale = model::read_factor(reader, "embedding_multiplier");
  a.residual_scale = model::read_factor(reader, "residual_multiplier");
  a.head_scale = 1 / model::read_factor(reader, "logits_scaling");
  model::scale_scores(a, model::read_factor(reader, "attention_multiplier"));
  return a;
}

Architecture read(const core::Json& config, const std::string& where) {
  return read_scaled({config, where});
}

Architecture read_moe(const core::Json& config, const std::string& where) {
  const ConfigReader reader(config, where);
  Architecture a = read_scaled(reader);
  a.layers.assign(static_cast<std::size_t>(a.num_layers), {.has_experts = true});
  a.experts.num = reader.size("num_local_experts", 8);
  a.experts.top_k = reader.size("num_experts_per_tok", 2);
  a.experts.d_ff = a.d_ff;
  a.experts.balance = model::read_balance(reader);
  if (a.experts.top_k > a.experts.num)
    reader.fail("num_experts_per_tok", "exceeds num_local_experts", "a token takes each once");
  return a;
}

Architecture read_moe_shared(const core::Json& config, const std::string& where) {
  Architecture a = read_moe(config, where);
  const ConfigReader reader(config, where);
  const char* key = "shared_intermediate_size";
  if (reader.real(key, 0) != 0) a.experts.d_shared = reader.size(key);
  return a;
}

model::TensorNames names_of_moe() {
  model::TensorNames names;
  names.router = "block_sparse_moe.router.layer";
  names.fused_gate_up = "block_sparse_moe.input_linear.weight";
  names.fused_down = "block_sparse_moe.output_linear.weight";
  names.fused_are_by_outputs = true;
  names.shared_gate_up = "shared_mlp.input_linear";
  names.shared_down = "shared_mlp.output_linear";
  return names;
}

}  // namespace

model::ModelFamily granite() {
  return model::decoder_family("granite", read);
}

model::ModelFamily granitemoe() {
  return model::decoder_family<names_of_moe>("granitemoe", read_moe);
}

model::ModelFamily granitemoeshared() {
  return model::decoder_family<names_of_moe>("granitemoeshared", read_moe_shared);
}

}  // namespace finetune::models::granite
