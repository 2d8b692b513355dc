// SPDX-License-Identifier: Apache-2.0
// Qwen 2, 2.5 and 3.
#include "models/qwen/qwen.hpp"
#include "models/qwen/read.hpp"

#include <algorithm>

#include "model/config_json.hpp"
#include "model/decoder_family.hpp"

namespace finetune::models::qwen {
namespace {

using model::Architecture;
using model::ConfigReader;

/// A window is used only where `use_sliding_window` says so, and from layer `max_window_layers` on.
void read_window(const ConfigReader& reader, Architecture& a) {
  if (!reader.boolean("use_sliding_window", false)) return;
  if (reader.names("sliding_window") && !reader.has("sliding_window")) return;
  const std::int64_t window = reader.size("sliding_window", 4096);
  if (reader.has("layer_types")) return model::read_windows(reader, 0, window, a);
  const std::int64_t first = reader.names("max_window_layers") && !reader.has("max_window_layers")
                                 ? a.num_layers
                                 : static_cast<std::int64_t>(reader.real("max_window_layers", 28));
  for (std::int64_t i = std::max<std::int64_t>(first, 0); i < a.num_layers; ++i)
    a.layers[static_cast<std::size_t>(i)].window = window;
}

Architecture read_qwen2(const core::Json& config, const std::string& where) {
  const ConfigReader reader(config, where);
  Architecture a;
  model::read_decoder(reader, a, {.num_kv_heads = 32});
  a.qkv_bias = true;
  a.layers.resize(static_cast<std::size_t>(a.num_layers));
  read_window(reader, a);
  return a;
}

Architecture read_qwen3(const core::Json& config, const std::string& where) {
  const ConfigReader reader(config, where);
  Architecture a;
  read_normed(reader, {.head_size = 128, .num_kv_heads = 32}, a);
  read_window(reader, a);
  return a;
}

Architecture read_qwen3_moe(const core::Json& config, const std::string& where) {
  return read_experts({config, where}, {.num_kv_heads = 4});
}

/// Its heads for several tokens at once are not trained.
model::TensorNames names_of_mimo() {
  model::TensorNames names;
  names.foreign = {"model.mtp_layers."};
  return names;
}

}  // namespace

void read_normed(const ConfigReader& reader, const model::Unsaid& unsaid, Architecture& a) {
  model::read_decoder(reader, a, unsaid);
  reader.require_false("attention_bias");
  a.layers.resize(static_cast<std::size_t>(a.num_layers));
  for (model::Layer& layer : a.layers)
    layer.head_norm = model::HeadNorm::weighted;
}

void read_routing(const ConfigReader& reader, const model::Experts& unsaid, Architecture& a) {
  reader.require_false("use_sliding_window");
  a.experts.num =
      reader.size(reader.has("num_experts") ? "num_experts" : "num_local_experts", unsaid.num);
  a.experts.top_k = reader.size("num_experts_per_tok", unsaid.top_k);
  a.experts.d_ff = reader.size("moe_intermediate_size", unsaid.d_ff);
  a.experts.normalizes = reader.boolean("norm_topk_prob", unsaid.normalizes);
  a.experts.balance = model::read_balance(reader);
  if (a.experts.top_k > a.experts.num)
    reader.fail("num_experts_per_tok", "exceeds the number of experts", "a token takes each once");
  const std::int64_t step = reader.size("decoder_sparse_step", 1);
  const std::vector<std::int64_t> dense = reader.numbers("mlp_only_layers");
  for (std::int64_t i = 0; i < a.num_layers; ++i) {
    a.layers[static_cast<std::size_t>(i)].has_experts =
        (i + 1) % step == 0 && std::find(dense.begin(), dense.end(), i) == dense.end();
  }
}

namespace {

/// Qwen 1.5 and 2 with experts, one of which every token takes, times a sigmoid.
Architecture read_qwen2_moe(const core::Json& config, const std::string& where) {
  const ConfigReader reader(config, where);
  Architecture a;
  model::read_decoder(reader, a, {.num_kv_heads = 16});
  a.qkv_bias = reader.boolean("qkv_bias", true);
  a.layers.resize(static_cast<std::size_t>(a.num_layers));
  read_routing(reader, {.num = 60, .top_k = 4, .d_ff = 1408, .normalizes = false}, a);
  a.experts.d_shared = reader.size("shared_expert_intermediate_size", 5632);
  a.experts.gates_shared = true;
  return a;
}

}  // namespace

model::TensorNames with_shared_expert(model::TensorNames names) {
  names.shared_gate = "mlp.shared_expert.gate_proj";
  names.shared_up = "mlp.shared_expert.up_proj";
  names.shared_down = "mlp.shared_expert.down_proj";
  names.shared_expert_gate = "mlp.shared_expert_gate";
  return names;
}

Architecture read_experts(const ConfigReader& reader, const model::Unsaid& unsaid) {
  Architecture a;
  read_normed(reader, unsaid, a);
  read_routing(reader, {.num = 128, .top_k = 8, .d_ff = 768, .normalizes = false}, a);
  return a;
}

namespace {

model::TensorNames names_of_qwen2_moe() {
  return with_shared_expert({});
}

}  // namespace

model::ModelFamily mimo() {
  return model::decoder_family<names_of_mimo>("mimo", read_qwen2);
}

model::ModelFamily qwen2() {
  return model::decoder_family("qwen2", read_qwen2);
}

model::ModelFamily qwen2_moe() {
  return model::decoder_family<names_of_qwen2_moe>("qwen2_moe", read_qwen2_moe);
}

model::ModelFamily qwen3() {
  return model::decoder_family("qwen3", read_qwen3);
}

model::ModelFamily qwen3_moe() {
  return model::decoder_family("qwen3_moe", read_qwen3_moe);
}

}  // namespace finetune::models::qwen
