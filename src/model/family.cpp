// SPDX-License-Identifier: Apache-2.0
#include "model/family.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "core/error.hpp"
#include "core/file.hpp"
#include "core/python_json.hpp"
#include "core/text.hpp"
#include "model/config_json.hpp"

namespace finetune::model {
namespace {

/// Whether a letter is missing, one too many, or two have changed places. Programs write this file:
/// a type that differs in anything else ("ministral", "mistral3", "llava") is another architecture,
/// and no other name in the file makes it the known one.
bool is_misspelt(std::string_view written, std::string_view meant) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  if (written.size() == meant.size()) {
    const auto [left, right] = std::ranges::mismatch(written, meant);
    const auto rest = static_cast<std::size_t>(written.end() - left);
    return rest >= 2 && left[0] == right[1] && left[1] == right[0] && is_letter(left[0]) &&
           is_letter(left[1]) && std::equal(left + 2, written.end(), right + 2);
  }
  const std::string_view longer = written.size() > meant.size() ? written : meant;
  const std::string_view shorter = written.size() > meant.size() ? meant : written;
  if (longer.size() != shorter.size() + 1) return false;
  const auto at = std::ranges::mismatch(longer, shorter).in1;
  return is_letter(*at) &&
         std::equal(at + 1, longer.end(), shorter.end() - (longer.end() - at - 1));
}

const ModelFamily& claiming(const std::string& model_type, const std::vector<ModelFamily>& families,
                            const std::string& where) {
  std::vector<std::string> known;
  for (const ModelFamily& family : families) {
    for (const std::string& type : family.model_types) {
      if (type == model_type) return family;
      known.push_back(type);
    }
  }
  std::ranges::sort(known);
  std::string list;
  for (const std::string& type : known)
    list += (list.empty() ? "" : ", ") + type;
  const auto near = std::ranges::find_if(
      known, [&](const std::string& type) { return is_misspelt(model_type, type); });
  core::fail(
      core::ErrorKind::input,
      {where, fmt::format("unknown model_type \"{}\"", model_type), fmt::format("known: {}", list),
       near != known.end() ? fmt::format("Did you mean \"{}\"?", *near)
                           : "Choose a model of one of these families."});
}

/// In double: the products of sizes that a file may name do not fit into 64 bits, and a table of
/// their layers into no memory.
void require_possible(const Architecture& a, const std::string& where) {
  constexpr double largest_experts = 1e6;  // rows of the table
  constexpr double largest_parameters = 0x1p48;
  const auto real = [](std::int64_t size) { return static_cast<double>(size); };
  const double width = real(a.d_model);
  const double block = width * (3 * real(a.d_ff) +
                                2 * real(a.head_size) * (real(a.num_heads) + real(a.num_kv_heads)));
  const Latents& latents = a.latents;
  const double of_latents = (width + 2 * real(a.head_size) * real(a.num_heads)) *
                            (real(latents.d_query) + real(latents.d_key_value));
  const double experts = real(a.experts.num) * real(a.num_layers);
  const StateHeads& states = a.states;
  const double of_states =
      width * real(states.num_groups) *
      (3 * real(states.heads_per_group) * real(states.head_size) + 2 * real(states.state_size));
  const double parameters = 2 * width * real(a.vocab_size) +
                            real(a.num_layers) * (block + of_latents + of_states) +
                            3 * width * real(a.experts.d_ff) * experts;
  if (a.num_layers <= most_layers && experts <= largest_experts && parameters <= largest_parameters)
    return;
  core::fail(core::ErrorKind::input,
             {where,
              fmt::format("describes a model of {} layers and about {:.1e} parameters",
                          a.num_layers, parameters),
              "no more than 100,000 layers, a million experts and 2^48 parameters can be counted",
              "Use the config.json the model was published with."});
}

}  // namespace

std::string read_config(const std::filesystem::path& model_folder) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(model_folder, ignored)) {
    const bool is_there = std::filesystem::exists(model_folder, ignored);
    core::fail(
        core::ErrorKind::input,
        {model_folder.string(), is_there ? "is not a folder" : "is not there",
         "a model is a Hugging Face folder with config.json, *.safetensors and tokenizer.json",
         "Correct model.path."});
  }
  return core::read_text(model_folder / "config.json", core::largest_config_bytes);
}

namespace {

/// A list of what each layer attends to, where there is one, says what was read from other keys.
void require_layer_types(const core::Json& config, const Architecture& a,
                         const std::string& where) {
  const core::Json& text = config.contains("text_config") ? config["text_config"] : config;
  const auto found = text.find("layer_types");
  if (found == text.end() || found->is_null()) return;
  const ConfigReader reader(text, where);
  if (!found->is_array() || std::ssize(*found) != a.num_layers)
    reader.fail("layer_types", "is no list with one entry per layer",
                "each layer attends in its way");
  for (std::int64_t i = 0; i < a.num_layers; ++i) {
    const Layer layer = a.layer(i);
    const std::string read = layer.remembers()  ? "linear_attention"
                             : layer.window > 0 ? "sliding_attention"
                             : layer.chunk > 0  ? "chunked_attention"
                                                : "full_attention";
    const std::string told = (*found)[static_cast<std::size_t>(i)].dump();
    if (told != '"' + read + '"') {
      reader.fail_unsupported("layer_types", fmt::format("has {} for layer {}", told, i),
                              fmt::format("the other keys say \"{}\"", read));
    }
  }
}

}  // namespace

Identified identify(const std::string& config_text, const std::string& where,
                    const std::vector<ModelFamily>& families) {
  const core::Json config = core::parse_python_json(config_text, where);
  if (!config.is_object() || !config.contains("model_type") || !config["model_type"].is_string()) {
    core::fail(core::ErrorKind::input,
               {where, "has no \"model_type\"", "it names the model's family",
                "Use the config.json the model was published with."});
  }
  const ModelFamily& family = claiming(config["model_type"].get<std::string>(), families, where);
  Architecture architecture = family.read(config, where);
  architecture.outputs = read_outputs(config, where);
  if (architecture.outputs.are_of_texts()) architecture.tied_embeddings = false;
  require_possible(architecture, where);
  if (architecture.num_layers_with_experts() > 0 && !architecture.activation.is_swiglu() &&
      architecture.experts.activation.is_swiglu())
    ConfigReader(config, where)
        .fail_unsupported("hidden_act", "is not silu", "experts are computed with it alone");
  if (architecture.activation.function == Activation::Function::xielu &&
      architecture.activation.is_gated)
    ConfigReader(config, where)
        .fail_unsupported("hidden_act", "is \"xielu\"", "it is computed without a gate alone");
  require_layer_types(config, architecture, where);
  architecture.family = family.name;
  return {&family, std::move(architecture)};
}

}  // namespace finetune::model
