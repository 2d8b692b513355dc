// SPDX-License-Identifier: Apache-2.0
// Hunyuan: norms of heads come behind positions. With experts: one more in each layer, which every
// token takes.
#include "models/hunyuan/hunyuan.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "model/config_json.hpp"
#include "model/decoder_family.hpp"

namespace finetune::models::hunyuan {
namespace {

using model::ConfigReader;

/// Positions of longer contexts by a larger base, whatever the length of a text.
double base_of(const ConfigReader& rope, const model::Architecture& a) {
  const double alpha = model::read_factor(rope, "alpha");
  const auto size = static_cast<double>(a.head_size);
  return a.rope_theta * std::pow(alpha, size / (size - 2));
}

model::Architecture read(const ConfigReader& reader) {
  model::Architecture a;
  model::read_decoder(reader, a, {.norm_eps = 1e-5});
  model::read_biases(reader, a);
  a.layers.assign(static_cast<std::size_t>(a.num_layers),
                  {.head_norm = model::HeadNorm::weighted, .turns_before_norm = true});
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!reader.has(key)) continue;
    const ConfigReader rope(reader.object().at(key), reader.where() + ": " + key);
    if (rope.text("rope_type", rope.text("type", "default")) == "dynamic")
      a.rope_theta = base_of(rope, a);
  }
  return a;
}

model::Architecture read_dense(const core::Json& config, const std::string& where) {
  const ConfigReader reader(config, where);
  reader.require_false("mlp_bias");
  return read(reader);
}

/// One number for all layers, or a list of as many, which are the same.
std::int64_t read_of_layers(const ConfigReader& reader, const char* key, std::int64_t fallback) {
  if (!reader.has(key) || !reader.object().at(key).is_array()) return reader.size(key, fallback);
  const std::vector<std::int64_t> numbers = reader.numbers(key);
  if (numbers.empty() || numbers.front() == 0 ||
      std::ranges::count(numbers, numbers.front()) != std::ssize(numbers))
    reader.fail_unsupported(key, "differs between layers, or is 0", "all have the same experts");
  return numbers.front();
}

/// What Tencent's own code has settings for, and transformers has not.
void require_known(const ConfigReader& reader, const model::Architecture& a) {
  for (const char* key : {"use_cla", "mlp_bias"})
    reader.require_false(key);
  for (const char* key : {"use_qk_norm", "use_mixed_mlp_moe", "norm_topk_prob"})
    if (!reader.boolean(key, true))
      reader.fail_unsupported(key, "is false", "these models are computed with it alone");
  if (reader.real("moe_layer_num_skipped", 0) != 0)
    reader.fail_unsupported("moe_layer_num_skipped", "is not 0", "every layer has experts");
  if (read_of_layers(reader, "num_shared_expert", 1) != 1)
    reader.fail_unsupported("num_shared_expert", "is not 1", "every token takes one of them");
  if (read_of_layers(reader, "moe_intermediate_size", a.d_ff) != a.d_ff)
    reader.fail_unsupported("moe_intermediate_size", "is not intermediate_size",
                            "all experts are of one size");
}

model::Architecture read_moe(const core::Json& config, const std::string& where) {
  const ConfigReader reader(config, where);
  model::Architecture a = read(reader);
  require_known(reader, a);
  for (model::Layer& layer : a.layers)
    layer.has_experts = true;
  a.experts.num = read_of_layers(reader, "num_experts", 1);
  a.experts.top_k = read_of_layers(reader, "moe_topk", 1);
  a.experts.d_ff = a.experts.d_shared = a.d_ff;
  a.experts.balance = model::read_balance(reader);
  if (a.experts.top_k > a.experts.num)
    reader.fail("moe_topk", "exceeds num_experts", "a token takes each once");
  return a;
}

model::TensorNames names() {
  model::TensorNames names;
  names.query_norm = "self_attn.query_layernorm";
  names.key_norm = "self_attn.key_layernorm";
  names.router = "mlp.gate.wg";
  names.shared_gate = "mlp.shared_mlp.gate_proj";
  names.shared_up = "mlp.shared_mlp.up_proj";
  names.shared_down = "mlp.shared_mlp.down_proj";
  return names;
}

}  // namespace

model::ModelFamily hunyuan_v1_dense() {
  return model::decoder_family<names>("hunyuan_v1_dense", read_dense);
}

model::ModelFamily hunyuan_v1_moe() {
  return model::decoder_family<names>("hunyuan_v1_moe", read_moe);
}

}  // namespace finetune::models::hunyuan
