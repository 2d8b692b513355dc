// SPDX-License-Identifier: Apache-2.0
#include "train/input/described_model.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/file.hpp"
#include "core/python_json.hpp"
#include "model/packing.hpp"

namespace finetune::train {
namespace {

constexpr const char* quantize_config_name = "quantize_config.json";
constexpr const char* modelopt_config_name = "hf_quant_config.json";

/// The files of a model's folder that say how it is packed.
struct PackingTexts {
  std::string config;
  /// What AutoGPTQ wrote beside config.json before it wrote into it; empty without it.
  std::string quantize_config;
  /// What NVIDIA's ModelOpt writes beside config.json, which may not say a word of it; the same.
  std::string modelopt_config;
};

/// Read by the root. Collective on `world`.
std::string read_if_there(const comm::Communicator& world, const std::filesystem::path& path) {
  return world.broadcast_text(comm::agree(world, [&] {
    std::error_code ignored;
    if (!world.is_root() || !std::filesystem::exists(path, ignored)) return std::string();
    return core::read_text(path, core::largest_config_bytes);
  }));
}

model::Quantization read_quantization(const PackingTexts& texts,
                                      const std::filesystem::path& folder) {
  const auto place_of = [&](const char* name) { return (folder / name).string(); };
  const auto parsed = [](const std::string& text, const std::string& where) {
    return text.empty() ? core::Json() : core::parse_json(text, where);
  };
  const std::string where = place_of("config.json");
  const std::string quantize_where = place_of(quantize_config_name);
  const std::string modelopt_where = place_of(modelopt_config_name);
  model::Quantization quantization =
      model::read_quantization(core::parse_python_json(texts.config, where), where,
                               parsed(texts.quantize_config, quantize_where), quantize_where);
  if (!quantization.packing.is_dense() || texts.modelopt_config.empty()) return quantization;
  return model::read_modelopt(parsed(texts.modelopt_config, modelopt_where), modelopt_where);
}

/// The head that the files lack takes the place of theirs.
void add_new_head(model::ParameterTable& table) {
  table.rows[static_cast<std::size_t>(table.decoder.head)].is_new = true;
  for (const char* other : {"lm_head.", "score."})
    table.replaced.emplace_back(other);
}

}  // namespace

ChosenOutputs outputs_of(const core::Json& changes) {
  if (!changes.is_object() || !model::says_classification(changes)) return {};
  return {model::read_outputs(changes, "the run's head").kind, model::label_names(changes)};
}

void set_vocab_size(std::int64_t vocab_size, core::Json& config) {
  const auto raise = [&](core::Json& part) {
    for (const char* key : {"vocab_size", "vocab_size_per_layer_input"})
      if (part.is_object() && part.contains(key) && part[key].is_number_integer() &&
          part[key].get<std::int64_t>() < vocab_size)
        part[key] = vocab_size;
  };
  raise(config);
  if (config.contains("text_config")) raise(config["text_config"]);
}

DescribedModel describe_model(const comm::Communicator& world, const std::filesystem::path& folder,
                              const Registry& registry, const ChosenOutputs& chosen) {
  const std::string config = world.broadcast_text(comm::agree(
      world, [&] { return world.is_root() ? model::read_config(folder) : std::string(); }));
  const PackingTexts texts{config, read_if_there(world, folder / quantize_config_name),
                           read_if_there(world, folder / modelopt_config_name)};
  return comm::agree(world, [&] {
    const std::string where = (folder / "config.json").string();
    std::string text = config;
    core::Json changes;
    model::Outputs in_files;
    if (chosen.kind != model::HeadKind::next_token) {
      core::Json changed = core::parse_python_json(config, where);
      in_files = model::read_outputs(changed, where);
      changes = model::describe_outputs(changed, chosen.kind, chosen.labels);
      changed.update(changes);
      text = core::dump_python_json(changed);
    }
    if (chosen.vocab_size > 0) {
      core::Json changed = core::parse_python_json(text, where);
      set_vocab_size(chosen.vocab_size, changed);
      text = core::dump_python_json(changed);
    }
    auto identified = model::identify(text, where, registry.families);
    if (chosen.kind == model::HeadKind::reward)
      identified.architecture.outputs.kind = model::HeadKind::reward;
    DescribedModel described{.family = identified.family,
                             .architecture = identified.architecture,
                             .quantization = read_quantization(texts, folder),
                             .parameters = identified.family->describe(identified.architecture)};
    described.changes = std::move(changes);
    const model::Outputs& outputs = described.architecture.outputs;
    if (outputs.are_of_texts() &&
        (in_files.kind == model::HeadKind::next_token || in_files.num != outputs.num) &&
        chosen.kind != model::HeadKind::next_token)
      add_new_head(described.parameters);
    model::mark_packed(described.quantization, where, described.parameters);
    return described;
  });
}

namespace {

/// What is not unpacked to be trained.
bool stays_packed(const model::Packing& packing) {
  return packing.kind == model::Packing::Kind::nf4;
}

/// Whether the files' tensors themselves say how they are packed, each for itself.
bool is_seen_in_files(const model::Packing& packing) {
  using Kind = model::Packing::Kind;
  return packing.kind == Kind::fp8 || packing.kind == Kind::mxfp4;
}

}  // namespace

void unpack_trained(const model::Quantization& quantization, const std::string& deck,
                    const std::filesystem::path& folder, model::ParameterTable& table) {
  if (quantization.packing.is_dense()) return;
  if (stays_packed(quantization.packing))
    core::fail(core::ErrorKind::deck,
               {deck, "adapter.name = \"none\" would train all weights",
                (folder / "config.json").string() + " says that they are kept in 4 bits",
                "Set adapter.name = \"lora\"."});
  for (model::Parameter& row : table.rows) {
    if (!row.packing.in_files) continue;
    if (!is_seen_in_files(row.packing)) row.of_files = row.packing;
    row.packing = {};
    row.trainable = true;
  }
}

std::string unpacking_note(const model::Quantization& quantization,
                           const model::ParameterTable& table) {
  if (quantization.packing.is_dense() ||
      std::ranges::any_of(table.rows, [](const auto& row) { return row.packing.in_files; }))
    return "";
  return fmt::format(
      "all weights are trained, and those that the model's files hold in {} are unpacked as they "
      "are read",
      model::packing_name(quantization.packing));
}

void rewrite_for(const model::AdapterSettings& settings, const std::string& where,
                 const Registry& registry, model::ParameterTable& table) {
  const model::Adapter* adapter = model::find_adapter(registry.adapters, settings.name);
  core::check(adapter != nullptr, "adapters are of the registry");
  model::put_on(*adapter, settings, where, table);
}

}  // namespace finetune::train
