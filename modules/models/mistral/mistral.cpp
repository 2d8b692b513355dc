// SPDX-License-Identifier: Apache-2.0
#include "models/mistral/mistral.hpp"

#include "model/config_json.hpp"
#include "model/decoder_family.hpp"

namespace finetune::models::mistral {
namespace {

using model::Architecture;

/// `unsaid`: the window of a configuration without the key; null is none.
void read_window(const model::ConfigReader& reader, std::int64_t unsaid, Architecture& a) {
  const std::int64_t window = reader.has("sliding_window")     ? reader.size("sliding_window")
                              : reader.names("sliding_window") ? 0
                                                               : unsaid;
  for (model::Layer& layer : a.layers)
    layer.window = window;
}

Architecture read_plain(const model::ConfigReader& reader, const model::Unsaid& unsaid,
                        std::int64_t unsaid_window) {
  Architecture a;
  model::read_decoder(reader, a, unsaid);
  a.layers.resize(static_cast<std::size_t>(a.num_layers));
  read_window(reader, unsaid_window, a);
  return a;
}

Architecture read_usual(const model::ConfigReader& reader) {
  return read_plain(reader, {.num_kv_heads = 8}, 4096);
}

Architecture read_mistral(const core::Json& config, const std::string& where) {
  return read_usual({config, where});
}

/// Ministral 3: queries far into a text grow.
Architecture read_tuned(const model::ConfigReader& told) {
  const core::Json whole =
      model::with_rope(told.object(), {{"rope_type", "yarn"},
                                       {"rope_theta", 1e6},
                                       {"factor", 16.0},
                                       {"original_max_position_embeddings", 16384},
                                       {"mscale", 1.0},
                                       {"mscale_all_dim", 1.0},
                                       {"llama_4_scaling_beta", 0.1}});
  const model::ConfigReader reader(whole, told.where());
  Architecture a = read_plain(reader, {.head_size = 128, .num_kv_heads = 8, .norm_eps = 1e-5}, 0);
  const char* key = reader.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (!reader.has(key)) return a;
  const model::ConfigReader rope(reader.object().at(key), reader.where() + ": " + key);
  a.temperature.scale = rope.real("llama_4_scaling_beta", 0);
  if (a.temperature.scale == 0) return a;
  a.temperature.first = 0;
  a.temperature.floor =
      static_cast<double>(rope.size("original_max_position_embeddings", a.max_positions));
  for (model::Layer& layer : a.layers)
    layer.tunes_temperature = true;
  return a;
}

Architecture read_ministral3(const core::Json& config, const std::string& where) {
  return read_tuned({config, where});
}

/// A model that sees, too: Mistral Small 3.1 and 3.2, Magistral and Devstral with vision, and
/// Ministral 3.
Architecture read_mistral3(const core::Json& config, const std::string& where) {
  const model::ConfigReader reader = model::text_config(config, where);
  reader.require_text("model_type", "mistral", {"mistral", "ministral3"});
  const bool is_tuned = reader.text("model_type", "mistral") == "ministral3";
  Architecture a = is_tuned ? read_tuned(reader) : read_usual(reader);
  model::read_ties_of_whole(config, where, a);
  return a;
}

Architecture read_mixtral(const core::Json& config, const std::string& where) {
  const model::ConfigReader reader(config, where);
  Architecture a;
  a.rope_theta = 1e6;
  model::read_decoder(reader, a, {.num_kv_heads = 8, .norm_eps = 1e-5});
  a.layers.resize(static_cast<std::size_t>(a.num_layers));
  for (model::Layer& layer : a.layers)
    layer.has_experts = true;
  read_window(reader, 0, a);
  a.experts.num = reader.size("num_local_experts", 8);
  a.experts.top_k = reader.size("num_experts_per_tok", 2);
  a.experts.d_ff = a.d_ff;
  a.experts.balance = model::read_balance(reader);
  if (a.experts.top_k > a.experts.num)
    reader.fail("num_experts_per_tok", "exceeds num_local_experts", "a token takes each once");
  return a;
}

/// What Mixtral has besides Mistral's names is used by layers with experts alone.
model::TensorNames names() {
  model::TensorNames names;
  names.router = "block_sparse_moe.gate";
  names.expert = "block_sparse_moe.experts.";
  names.expert_gate = ".w1";
  names.expert_up = ".w3";
  names.expert_down = ".w2";
  return names;
}

model::TensorNames names_of_text() {
  model::TensorNames names = model::TensorNames().below("language_model.");
  names.foreign = {"multi_modal_projector.", "vision_tower."};
  return names;
}

}  // namespace

model::ModelFamily mistral() {
  return model::decoder_family<names>("mistral", read_mistral);
}

model::ModelFamily ministral3() {
  return model::decoder_family("ministral3", read_ministral3);
}

model::ModelFamily mistral3() {
  return model::decoder_family<names_of_text>("mistral3", read_mistral3);
}

model::ModelFamily mixtral() {
  return model::decoder_family<names>("mixtral", read_mixtral);
}

}  // namespace finetune::models::mistral
