// SPDX-License-Identifier: Apache-2.0
#include "model/config_json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.hpp"

namespace finetune::model {

const core::Json* ConfigReader::find(const char* key) const {
  const auto entry = object_.find(key);
  return entry == object_.end() || entry->is_null() ? nullptr : &*entry;
}

bool ConfigReader::has(const char* key) const {
  return find(key) != nullptr;
}

void ConfigReader::fail(const char* key, const std::string& problem, const std::string& why) const {
  core::fail(core::ErrorKind::input, {where_, fmt::format("\"{}\" {}", key, problem), why,
                                      "Use the config.json the model was published with."});
}

void ConfigReader::fail_unsupported(const char* key, const std::string& problem,
                                    const std::string& why) const {
  core::fail(core::ErrorKind::input,
             {where_, fmt::format("\"{}\" {}", key, problem), why, "Choose another model."});
}

std::int64_t ConfigReader::size(const char* key, std::optional<std::int64_t> fallback) const {
  const core::Json* value = find(key);
  if (value == nullptr && fallback) return *fallback;
  if (value == nullptr) fail(key, "is missing", "the model's shape depends on it");
  constexpr std::int64_t largest = std::int64_t{1} << 40;
  if (!value->is_number_integer()) fail(key, "is " + value->dump(), "a whole number is expected");
  const auto number = value->get<std::int64_t>();
  if (number < 1 || number > largest)
    fail(key, "is " + value->dump(), "a size from 1 to 2^40 is expected");
  return number;
}

double ConfigReader::real(const char* key, std::optional<double> fallback) const {
  const core::Json* value = find(key);
  if (value == nullptr && fallback) return *fallback;
  if (value == nullptr) fail(key, "is missing", "the model's arithmetic depends on it");
  if (!value->is_number() || !std::isfinite(value->get<double>())) {
    fail(key, "is " + value->dump(), "a finite number is expected");
  }
  return value->get<double>();
}

bool ConfigReader::boolean(const char* key, bool fallback) const {
  const core::Json* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) fail(key, "is " + value->dump(), "true or false is expected");
  return value->get<bool>();
}

std::string ConfigReader::text(const char* key, const std::string& fallback) const {
  const core::Json* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_string()) fail(key, "is " + value->dump(), "a string is expected");
  return value->get<std::string>();
}

std::vector<std::int64_t> ConfigReader::numbers(const char* key) const {
  const core::Json* value = find(key);
  std::vector<std::int64_t> result;
  if (value == nullptr) return result;
  if (!value->is_array()) fail(key, "is no list", "a list of whole numbers is expected");
  for (const core::Json& each : *value) {
    if (!each.is_number_integer() || each.get<std::int64_t>() < 0)
      fail(key, "holds " + each.dump(), "whole numbers from 0 are expected");
    result.push_back(each.get<std::int64_t>());
  }
  return result;
}

void ConfigReader::require_text(const char* key, const std::string& fallback,
                                std::initializer_list<const char*> accepted) const {
  const std::string value = text(key, fallback);
  if (std::find(accepted.begin(), accepted.end(), value) == accepted.end()) {
    fail_unsupported(key, fmt::format("is \"{}\"", value), "this program does not compute that");
  }
}

void ConfigReader::require_false(const char* key) const {
  if (boolean(key, false)) fail_unsupported(key, "is true", "this program does not compute that");
}

void read_decoder(const ConfigReader& config, Architecture& a,
                  std::optional<std::int64_t> default_head_size) {
  a.num_layers = config.size("num_hidden_layers");
  if (a.num_layers > most_layers)
    config.fail("num_hidden_layers", "exceeds 100,000", "a table has rows for each");
  a.vocab_size = config.size("vocab_size");
  a.d_model = config.size("hidden_size");
  a.num_heads = config.size("num_attention_heads");
  a.num_kv_heads = config.size("num_key_value_heads", a.num_heads);
  a.d_ff = config.size("intermediate_size");
  a.max_positions = config.size("max_position_embeddings", 2048);
  a.norm_eps = config.real("rms_norm_eps", 1e-6);
  a.init_std = config.real("initializer_range", 0.02);
  a.tied_embeddings = config.boolean("tie_word_embeddings", false);
  a.file_dtype = read_dtype(config);
  read_rope(config, a);
  config.require_text("hidden_act", "silu", {"silu", "swish"});
  if (!config.has("head_dim") && !default_head_size && a.d_model % a.num_heads != 0) {
    config.fail("hidden_size", "is not a multiple of num_attention_heads",
                "each head has a whole size");
  }
  a.head_size = config.size("head_dim", default_head_size.value_or(a.d_model / a.num_heads));
  if (a.head_size % 2 != 0)
    config.fail("head_dim", "is odd", "rotary positions turn pairs of channels");
  if (a.num_heads % a.num_kv_heads != 0) {
    config.fail("num_key_value_heads", "does not divide num_attention_heads",
                "query heads share keys in groups");
  }
}

double read_balance(const ConfigReader& config) {
  const double coefficient = config.real("router_aux_loss_coef", 0.001);
  if (coefficient < 0)
    config.fail("router_aux_loss_coef", "is negative",
                "it punishes experts that are used unevenly");
  return config.boolean("output_router_logits", false) ? coefficient : 0;
}

namespace {

/// What turned queries and keys are multiplied by for so much longer contexts.
double yarn_amplitude(double factor, double scale) {
  return factor <= 1 ? 1 : 0.1 * scale * std::log(factor) + 1;
}

void read_yarn(const ConfigReader& rope, const Architecture& architecture, RopeScaling& scaling) {
  scaling.kind = RopeScaling::Kind::yarn;
  std::optional<std::int64_t> original;
  if (architecture.max_positions > 0) original = architecture.max_positions;
  scaling.original_max_positions = rope.size("original_max_position_embeddings", original);
  scaling.beta_fast = rope.real("beta_fast", scaling.beta_fast);
  scaling.beta_slow = rope.real("beta_slow", scaling.beta_slow);
  scaling.is_truncated = rope.boolean("truncate", true);
  const double scale = rope.real("mscale", 0), of_all = rope.real("mscale_all_dim", 0);
  const bool has_scales = scale != 0 && of_all != 0;
  scaling.amplitude =
      rope.real("attention_factor", yarn_amplitude(scaling.factor, has_scales ? scale : 1) /
                                        yarn_amplitude(scaling.factor, has_scales ? of_all : 0));
  if (scaling.beta_slow <= 0)
    rope.fail("beta_slow", "is not positive", "it counts turns of a pair of channels");
  if (scaling.beta_fast < scaling.beta_slow)
    rope.fail("beta_fast", "is below beta_slow", "the frequencies between are blended");
  if (!(scaling.amplitude > 0))
    rope.fail("attention_factor", "is not positive", "queries and keys are multiplied by it");
  if (architecture.rope_theta <= 1)
    rope.fail("rope_theta", "is not above 1", "yarn goes by how fast frequencies fall");
}

}  // namespace

void read_rope(const ConfigReader& config, Architecture& architecture) {
  const bool new_style = config.has("rope_parameters");
  const char* key = new_style ? "rope_parameters" : "rope_scaling";
  const auto base = [](const ConfigReader& reader, double fallback) {
    const double theta = reader.real("rope_theta", fallback);
    if (theta <= 0) reader.fail("rope_theta", "is not positive", "angles are powers of it");
    return theta;
  };
  architecture.rope_theta = base(config, architecture.rope_theta);
  if (!config.has(key)) return;
  const ConfigReader rope(config.object().at(key), config.where() + ": " + key);
  if (!rope.object().is_object())
    config.fail(key, "is " + rope.object().dump(), "an object is expected");
  if (new_style) architecture.rope_theta = base(rope, architecture.rope_theta);

  RopeScaling& scaling = architecture.rope_scaling;
  const std::string kind = rope.text("rope_type", rope.text("type", "default"));
  if (kind == "default") return;
  scaling.factor = rope.real("factor");
  if (scaling.factor <= 0) rope.fail("factor", "is not positive", "positions are divided by it");
  if (kind == "linear") {
    scaling.kind = RopeScaling::Kind::linear;
  } else if (kind == "llama3") {
    scaling.kind = RopeScaling::Kind::llama3;
    scaling.low_freq_factor = rope.real("low_freq_factor");
    scaling.high_freq_factor = rope.real("high_freq_factor");
    scaling.original_max_positions = rope.size("original_max_position_embeddings");
  } else if (kind == "yarn") {
    read_yarn(rope, architecture, scaling);
  } else {
    rope.fail_unsupported("rope_type", fmt::format("is \"{}\"", kind),
                          "known: default, linear, llama3, yarn");
  }
  if (scaling.kind == RopeScaling::Kind::llama3 &&
      scaling.high_freq_factor < scaling.low_freq_factor) {
    rope.fail("high_freq_factor", "is below low_freq_factor",
              "the frequencies between are blended");
  }
}

core::DType read_dtype(const ConfigReader& config) {
  const std::string name = config.text("torch_dtype", config.text("dtype", "float32"));
  if (name == "float32") return core::DType::f32;
  if (name == "bfloat16") return core::DType::bf16;
  if (name == "float16") return core::DType::f16;
  config.fail("torch_dtype", fmt::format("is \"{}\"", name), "known: float32, bfloat16, float16");
}

}  // namespace finetune::model
