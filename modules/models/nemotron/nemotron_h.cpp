// SPDX-License-Identifier: Apache-2.0
// Nemotron-H, Nemotron Nano 2 and 3: each layer is one of a state space (Mamba 2), attention
// without positions, a feed-forward part without a gate, or experts. Layers that predict more
// tokens at once are not trained.
#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "model/config_json.hpp"
#include "model/decoder_family.hpp"
#include "model/not_finite.hpp"
#include "models/nemotron/nemotron.hpp"

namespace finetune::models::nemotron {
namespace {

using model::Architecture;
using model::ConfigReader;

constexpr const char* list_key = "layers_block_type";
constexpr const char* pattern_key = "hybrid_override_pattern";

constexpr model::Layer attention_alone{.rotary = model::Rotary::none,
                                       .has_feed_forward_half = false};
constexpr model::Layer state_space_alone{
    .rotary = model::Rotary::none, .has_state_space = true, .has_feed_forward_half = false};
constexpr model::Layer feed_forward_alone{.rotary = model::Rotary::none,
                                          .has_attention_half = false};
constexpr model::Layer experts_alone{
    .has_experts = true, .rotary = model::Rotary::none, .has_attention_half = false};

/// By names of transformers 5, of those before it, or by a letter each.
std::vector<model::Layer> read_layers(const ConfigReader& reader) {
  static const std::map<std::string, model::Layer, std::less<>> known = {
      {"linear_attention", state_space_alone},
      {"mamba", state_space_alone},
      {"M", state_space_alone},
      {"full_attention", attention_alone},
      {"attention", attention_alone},
      {"*", attention_alone},
      {"mlp", feed_forward_alone},
      {"-", feed_forward_alone},
      {"moe", experts_alone},
      {"E", experts_alone}};
  const char* key = reader.has(list_key) ? list_key : pattern_key;
  std::vector<std::string> types = reader.texts(list_key);
  if (!reader.has(list_key))
    for (const char letter : reader.text(pattern_key, ""))
      types.emplace_back(1, letter);
  if (types.empty()) reader.fail(key, "is missing", "it says of each layer what it is");
  std::vector<model::Layer> layers;
  for (const std::string& type : types) {
    const auto found = known.find(type);
    if (found == known.end())
      reader.fail_unsupported(key, "holds \"" + type + "\"",
                              "known: linear_attention (M), full_attention (*), mlp (-), moe (E)");
    layers.push_back(found->second);
  }
  if (reader.has("num_hidden_layers") && reader.size("num_hidden_layers") != std::ssize(layers))
    reader.fail("num_hidden_layers", "is not the number of layers in " + std::string(key),
                "that one says of each layer what it is");
  return layers;
}

/// A limit of steps: a number, or infinity as Python or transformers 5 writes it.
double read_limit(const ConfigReader& reader, const core::Json& limit) {
  const core::Json& told =
      limit.is_object() && limit.contains("__float__") ? limit["__float__"] : limit;
  if (model::not_finite_word(told) == "Infinity") return std::numeric_limits<double>::infinity();
  if (!told.is_number() || !(told.get<double>() >= 0))
    reader.fail("time_step_limit", "holds " + limit.dump(), "numbers from 0 are expected");
  return told.get<double>();
}

/// Who wrote these models computes with time_step_limit; transformers 5 takes time_step_min for the
/// lower one, which is of the first weights.
void read_step_limits(const ConfigReader& reader, model::StateHeads& heads) {
  if (!reader.has("time_step_limit")) return;
  const core::Json& limits = reader.object()["time_step_limit"];
  if (!limits.is_array() || limits.size() != 2)
    reader.fail("time_step_limit", "is no list of two", "it has the least and the most");
  heads.least_step = read_limit(reader, limits[0]);
  heads.most_step = read_limit(reader, limits[1]);
  if (!(heads.least_step < heads.most_step))
    reader.fail("time_step_limit", "has a least that is not below the most",
                "all steps would be alike");
}

/// Other names of the same, which transformers 5 prefers.
void refuse_other_names(const ConfigReader& reader) {
  for (const char* name : {"mamba_n_groups", "mamba_d_conv", "mamba_conv_bias"})
    if (reader.has(name))
      reader.fail_unsupported(name, "is given", "n_groups, conv_kernel and use_conv_bias say it");
}

void read_states(const ConfigReader& reader, Architecture& a) {
  reader.require_text("mamba_hidden_act", "silu", {"silu", "swish"});
  reader.require_false("use_bias");
  reader.require_false("mamba_proj_bias");
  if (!reader.boolean("use_conv_bias", true))
    reader.fail_unsupported("use_conv_bias", "is false", "convolutions have biases");
  model::StateHeads& heads = a.states;
  heads.num_groups = reader.size("n_groups", 8);
  const std::int64_t num_heads = reader.size("mamba_num_heads", 128);
  if (num_heads % heads.num_groups != 0)
    reader.fail("mamba_num_heads", "is no multiple of n_groups", "every group has as many heads");
  heads.heads_per_group = num_heads / heads.num_groups;
  heads.head_size = reader.size("mamba_head_dim", 64);
  heads.state_size = reader.size("ssm_state_size", 128);
  heads.taps = reader.size("conv_kernel", 4);
  read_step_limits(reader, heads);
}

void read_experts(const ConfigReader& reader, Architecture& a) {
  if (reader.has("moe_latent_size"))
    reader.fail_unsupported("moe_latent_size", "is not null",
                            "experts read tokens as they are, not projected");
  model::read_grouped_experts(reader, {.num = 8, .top_k = 2, .d_ff = 7688}, a);
  a.experts.d_shared = reader.size("moe_shared_expert_intermediate_size", 7688);
  a.experts.activation = a.activation;
}

/// As read_decoder expects it: sizes that the layers say, or that no layer has.
core::Json completed(const core::Json& config, std::int64_t num_layers) {
  core::Json whole = config;
  const auto add = [&](const char* key, std::int64_t size) {
    if (!whole.contains(key) || whole[key].is_null()) whole[key] = size;
  };
  add("num_hidden_layers", num_layers);
  add("intermediate_size", 21504);
  add("num_attention_heads", 32);
  add("num_key_value_heads", 8);
  return whole;
}

Architecture read_mixers(const core::Json& config, const std::string& where) {
  std::vector<model::Layer> layers = read_layers({config, where});
  const core::Json whole = completed(config, std::ssize(layers));
  const ConfigReader reader(whole, where);
  Architecture a;
  model::read_decoder(reader, a, {.head_size = reader.size("attention_head_dim", 128)});
  reader.require_text("mlp_hidden_act", "relu2", {"relu2"});
  refuse_other_names(reader);
  // Some programs, and the files they write, have a head of its own all the same.
  reader.require_false("tie_word_embeddings");
  reader.require_false("attention_bias");
  reader.require_false("mlp_bias");
  if (reader.has("sliding_window"))
    reader.fail_unsupported("sliding_window", "is not null", "attention sees all tokens");
  a.norm_eps = reader.real("layer_norm_epsilon", 1e-5);
  a.activation = {model::Activation::Function::relu_squared, /*is_gated=*/false};
  if (std::ranges::any_of(layers, &model::Layer::has_state_space)) read_states(reader, a);
  if (std::ranges::any_of(layers, &model::Layer::has_experts)) read_experts(reader, a);
  a.layers = std::move(layers);
  return a;
}

model::TensorNames names_of_mixers() {
  model::TensorNames names;
  names.embedding = "backbone.embeddings";
  names.layers = "backbone.layers.";
  names.final_norm = "backbone.norm_f";
  names.attention_norm = names.feed_forward_norm = "norm";
  names.query = "mixer.q_proj";
  names.key = "mixer.k_proj";
  names.value = "mixer.v_proj";
  names.attention_out = "mixer.o_proj";
  names.up = "mixer.up_proj";
  names.down = "mixer.down_proj";
  names.router = "mixer.gate";
  names.correction = "mixer.gate.e_score_correction_bias";
  names.expert = "mixer.experts.";
  names.shared_up = "mixer.shared_experts.up_proj";
  names.shared_down = "mixer.shared_experts.down_proj";
  names.foreign = {"mtp."};
  return names;
}

}  // namespace

model::ModelFamily nemotron_h() {
  return model::decoder_family<names_of_mixers>("nemotron_h", read_mixers);
}

}  // namespace finetune::models::nemotron
