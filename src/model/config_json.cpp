// SPDX-License-Identifier: Apache-2.0
#include "model/config_json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

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

std::vector<double> ConfigReader::reals(const char* key) const {
  const core::Json* value = find(key);
  std::vector<double> result;
  if (value == nullptr) return result;
  if (!value->is_array()) fail(key, "is no list", "a list of numbers is expected");
  for (const core::Json& each : *value) {
    if (!each.is_number() || !std::isfinite(each.get<double>()))
      fail(key, "holds " + each.dump(), "finite numbers are expected");
    result.push_back(each.get<double>());
  }
  return result;
}

std::vector<std::string> ConfigReader::texts(const char* key) const {
  const core::Json* value = find(key);
  std::vector<std::string> result;
  if (value == nullptr) return result;
  if (!value->is_array()) fail(key, "is no list", "a list of texts is expected");
  for (const core::Json& each : *value) {
    if (!each.is_string()) fail(key, "holds " + each.dump(), "texts are expected");
    result.push_back(each.get<std::string>());
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

namespace {

/// A size that has a fallback of its own where its key is there as null.
std::int64_t size_or(const ConfigReader& config, const char* key,
                     std::optional<std::int64_t> unsaid, std::int64_t of_null) {
  return config.size(key, config.names(key) ? of_null : unsaid.value_or(of_null));
}

}  // namespace

void read_decoder(const ConfigReader& config, Architecture& a, const Unsaid& unsaid) {
  a.num_layers = config.size("num_hidden_layers");
  if (a.num_layers > most_layers)
    config.fail("num_hidden_layers", "exceeds 100,000", "a table has rows for each");
  a.vocab_size = config.size("vocab_size");
  a.d_model = config.size("hidden_size");
  a.num_heads = config.size("num_attention_heads");
  a.num_kv_heads = size_or(config, "num_key_value_heads", unsaid.num_kv_heads, a.num_heads);
  a.d_ff = config.size("intermediate_size");
  a.max_positions = config.size("max_position_embeddings", 2048);
  a.norm_eps = config.real("rms_norm_eps", unsaid.norm_eps);
  a.init_std = config.real("initializer_range", 0.02);
  a.tied_embeddings = config.boolean("tie_word_embeddings", unsaid.is_tied);
  a.file_dtype = read_dtype(config);
  a.activation.function = read_activation(config, "hidden_act", "silu");
  const bool has_own_size =
      config.has("head_dim") || (unsaid.head_size && !config.names("head_dim"));
  if (!has_own_size && a.d_model % a.num_heads != 0) {
    config.fail("hidden_size", "is not a multiple of num_attention_heads",
                "each head has a whole size");
  }
  a.head_size = size_or(config, "head_dim", unsaid.head_size, a.d_model / a.num_heads);
  if (a.head_size % 2 != 0)
    config.fail("head_dim", "is odd", "rotary positions turn pairs of channels");
  if (a.num_heads % a.num_kv_heads != 0) {
    config.fail("num_key_value_heads", "does not divide num_attention_heads",
                "query heads share keys in groups");
  }
  read_rope(config, a, unsaid.turned_part);
}

Activation::Function read_activation(const ConfigReader& config, const char* key,
                                     const std::string& fallback) {
  using enum Activation::Function;
  static const std::map<std::string, Activation::Function, std::less<>> known = {
      {"silu", silu},          {"swish", silu},          {"gelu", gelu},
      {"gelu_new", gelu_tanh}, {"gelu_fast", gelu_tanh}, {"gelu_pytorch_tanh", gelu_tanh},
      {"relu2", relu_squared}, {"xielu", xielu}};
  const std::string name = config.text(key, fallback);
  const auto found = known.find(name);
  if (found == known.end())
    config.fail_unsupported(key, fmt::format("is \"{}\"", name),
                            "known: silu, gelu, gelu_pytorch_tanh, relu2, xielu");
  return found->second;
}

double read_factor(const ConfigReader& config, const char* key, double fallback) {
  const double factor = config.real(key, fallback);
  if (!(factor > 0)) config.fail(key, "is not positive", "activations are multiplied by it");
  return factor;
}

void scale_scores(Architecture& a, double factor) {
  const auto amplitude = [&](std::int64_t head_size) {
    return std::sqrt(factor * std::sqrt(static_cast<double>(head_size)));
  };
  a.rope_scaling.amplitude *= amplitude(a.head_size);
  if (a.window_positions) a.window_positions->scaling.amplitude *= amplitude(a.window_head_size());
}

void read_biases(const ConfigReader& config, Architecture& a) {
  a.qkv_bias = a.attention_out_bias = config.boolean("attention_bias", false);
  a.feed_forward_bias = config.boolean("mlp_bias", false);
}

std::vector<bool> read_sliding_layers(const ConfigReader& config, std::int64_t num_layers,
                                      std::int64_t pattern) {
  std::vector<bool> slides;
  for (const std::string& type : config.texts("layer_types")) {
    if (type != "sliding_attention" && type != "full_attention")
      config.fail_unsupported("layer_types", fmt::format("holds \"{}\"", type),
                              "known: full_attention, sliding_attention");
    slides.push_back(type == "sliding_attention");
  }
  if (!config.has("layer_types"))
    for (std::int64_t i = 0; i < num_layers; ++i)
      slides.push_back(pattern > 0 && (i + 1) % pattern != 0);
  if (std::ssize(slides) != num_layers)
    config.fail("layer_types", "has another length than num_hidden_layers",
                "it says of each layer what it attends to");
  return slides;
}

void read_windows(const ConfigReader& config, std::int64_t pattern, std::int64_t unsaid,
                  Architecture& a) {
  const std::vector<bool> slides = read_sliding_layers(config, a.num_layers, pattern);
  const char* key = "sliding_window";
  if (config.names(key) && !config.has(key) && std::ranges::find(slides, true) != slides.end())
    config.fail(key, "is null", "there are layers that slide");
  const std::int64_t window = config.size(key, unsaid);
  for (std::size_t i = 0; i < slides.size(); ++i)
    if (slides[i]) a.layers.at(i).window = window;
}

std::vector<bool> read_rotation(const ConfigReader& config, std::int64_t num_layers) {
  std::vector<std::int64_t> list = config.numbers("no_rope_layers");
  const std::int64_t interval = config.size("no_rope_layer_interval", 4);
  if (list.empty()) {
    for (std::int64_t i = 0; i < num_layers; ++i)
      list.push_back((i + 1) % interval == 0 ? 0 : 1);
  }
  if (std::ssize(list) != num_layers)
    config.fail("no_rope_layers", "has another length than num_hidden_layers",
                "it says 0 or 1 for each layer");
  return {list.begin(), list.end()};
}

ConfigReader text_config(const core::Json& config, const std::string& where) {
  if (!config.contains("text_config") || !config["text_config"].is_object())
    ConfigReader(config, where)
        .fail("text_config", "is missing", "it describes the part that is trained");
  return {config["text_config"], where + ": text_config"};
}

void read_ties_of_whole(const core::Json& config, const std::string& where, Architecture& a) {
  a.tied_embeddings = ConfigReader(config, where).boolean("tie_word_embeddings", a.tied_embeddings);
}

void read_ties_of_whole(const core::Json& config, const std::string& where, bool of_class,
                        Architecture& a) {
  constexpr const char* key = "tie_word_embeddings";
  const ConfigReader whole(config, where);
  const ConfigReader text = text_config(config, where);
  if (!whole.has(key) && text.has(key) && a.tied_embeddings != of_class)
    text.fail(key, a.tied_embeddings ? "is true" : "is false",
              "some programs read it beside text_config alone, where it is missing");
  a.tied_embeddings = whole.boolean(key, of_class);
}

double read_balance(const ConfigReader& config) {
  const double coefficient = config.real("router_aux_loss_coef", 0.001);
  if (coefficient < 0)
    config.fail("router_aux_loss_coef", "is negative",
                "it punishes experts that are used unevenly");
  return config.boolean("output_router_logits", false) ? coefficient : 0;
}

core::DType read_dtype(const ConfigReader& config) {
  const std::string name = config.text("torch_dtype", config.text("dtype", "float32"));
  if (name == "float32") return core::DType::f32;
  if (name == "bfloat16") return core::DType::bf16;
  if (name == "float16") return core::DType::f16;
  config.fail("torch_dtype", fmt::format("is \"{}\"", name), "known: float32, bfloat16, float16");
}

}  // namespace finetune::model
