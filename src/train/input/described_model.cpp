// SPDX-License-Identifier: Apache-2.0
#include "train/input/described_model.hpp"

#include <algorithm>

#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/file.hpp"
#include "core/python_json.hpp"

namespace finetune::train {
namespace {

constexpr const char* quantize_config_name = "quantize_config.json";
constexpr const char* modelopt_config_name = "hf_quant_config.json";

/// What AutoGPTQ wrote beside config.json before it wrote into it; empty without it.
std::string read_quantize_config(const std::filesystem::path& folder) {
  std::error_code ignored;
  const std::filesystem::path path = folder / quantize_config_name;
  if (!std::filesystem::exists(path, ignored)) return "";
  return core::read_text(path, core::largest_config_bytes);
}

/// What NVIDIA's ModelOpt writes beside config.json, which may not say a word of it.
void refuse_modelopt(const std::filesystem::path& folder) {
  std::error_code ignored;
  const std::filesystem::path path = folder / modelopt_config_name;
  if (!std::filesystem::exists(path, ignored)) return;
  model::refuse_modelopt(core::read_json(path, core::largest_config_bytes), path.string());
}

model::Quantization read_quantization(const std::string& config, const std::string& quantize_config,
                                      const std::filesystem::path& folder) {
  const std::string where = (folder / "config.json").string();
  const std::string quantize_where = (folder / quantize_config_name).string();
  return model::read_quantization(
      core::parse_python_json(config, where), where,
      quantize_config.empty() ? core::Json() : core::parse_json(quantize_config, quantize_where),
      quantize_where);
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

DescribedModel describe_model(const comm::Communicator& world, const std::filesystem::path& folder,
                              const Registry& registry, const ChosenOutputs& chosen) {
  const std::string config = world.broadcast_text(comm::agree(
      world, [&] { return world.is_root() ? model::read_config(folder) : std::string(); }));
  comm::agree_all(world, [&] {
    if (world.is_root()) refuse_modelopt(folder);
  });
  const std::string quantize_config = world.broadcast_text(comm::agree(
      world, [&] { return world.is_root() ? read_quantize_config(folder) : std::string(); }));
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
    auto identified = model::identify(text, where, registry.families);
    if (chosen.kind == model::HeadKind::reward)
      identified.architecture.outputs.kind = model::HeadKind::reward;
    DescribedModel described{.family = identified.family,
                             .architecture = identified.architecture,
                             .quantization = read_quantization(config, quantize_config, folder),
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

void rewrite_for(const model::AdapterSettings& settings, const std::string& where,
                 const Registry& registry, model::ParameterTable& table) {
  const model::Adapter* adapter = model::find_adapter(registry.adapters, settings.name);
  core::check(adapter != nullptr, "adapters are of the registry");
  model::put_on(*adapter, settings, where, table);
}

}  // namespace finetune::train
