// SPDX-License-Identifier: Apache-2.0
// A model in 4 bits, so that the next start reads a quarter of the bytes and quantises nothing.
#include <fmt/format.h>

#include <algorithm>

#include "base/initial_weights.hpp"
#include "base/nf4_files.hpp"
#include "commands.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "core/python_json.hpp"
#include "core/text.hpp"
#include "export.hpp"
#include "model_card.hpp"
#include "train/input/described_model.hpp"
#include "weights/export_folder.hpp"
#include "weights/folder.hpp"

namespace finetune::app {
namespace {

/// The model with the rows marked that qlora quantises.
train::DescribedModel describe(const Arguments& arguments, const train::Registry& registry) {
  train::DescribedModel model = train::describe_model({}, arguments.path, registry);
  if (!model.quantization.packing.is_dense())
    core::fail(core::ErrorKind::input, {arguments.path, "is in 4 bits already",
                                        "config.json says so", "Name the original model."});
  model::AdapterSettings settings;
  settings.name = "qlora";
  settings.double_quant = !arguments.is_single;
  model::ParameterTable quantised = model.parameters;
  train::rewrite_for(settings, arguments.path, registry, quantised);
  for (std::size_t i = 0; i < model.parameters.rows.size(); ++i)
    model.parameters.rows[i].packing = quantised.rows[i].packing;
  return model;
}

std::string torch_dtype(const core::Json& config, const model::Architecture& architecture) {
  for (const char* key : {"dtype", "torch_dtype"})
    if (config.contains(key) && config[key].is_string()) return config[key].get<std::string>();
  return architecture.file_dtype == core::DType::bf16  ? "bfloat16"
         : architecture.file_dtype == core::DType::f16 ? "float16"
                                                       : "float32";
}

std::int64_t bytes_of(const std::vector<weights::TensorSpec>& tensors) {
  std::int64_t sum = 0;
  for (const weights::TensorSpec& tensor : tensors)
    sum += tensor.size_bytes();
  return sum;
}

}  // namespace

int run_quantize(const Arguments& arguments, const train::Registry& registry) {
  const train::DescribedModel model = describe(arguments, registry);
  const auto files = weights::ModelFiles::open(arguments.path);
  train::DescribedModel dense = model;
  for (model::Parameter& row : dense.parameters.rows)
    row.packing = {};
  base::require_same_model(files, dense.architecture, dense.parameters);
  base::Nf4Files packed(files, model.parameters);
  core::Json config = config_of(arguments.path);
  config["quantization_config"] =
      base::nf4_config(!arguments.is_single, torch_dtype(config, model.architecture));
  weights::ExportPlan plan;
  plan.tensors = packed.tensors();
  plan.max_shard_size_bytes = parse_bytes(arguments.max_shard_size);
  plan.texts["config.json"] = core::dump_python_json(config);
  if (!weights::is_in_folder(arguments.path, "generation_config.json"))
    plan.texts["generation_config.json"] = generation_config(config);
  weights::export_bytes(
      arguments.second, plan,
      [&](std::string_view name, std::int64_t first, std::span<std::byte> target) {
        packed.read(name, first, target);
      },
      arguments.path);
  log::info(fmt::format("wrote {}: {} in NF4{}, was {}", arguments.second,
                        core::human_bytes(bytes_of(plan.tensors)),
                        arguments.is_single ? "" : " with double quantisation",
                        core::human_bytes(files.size_bytes())));
  const bool has_experts = std::ranges::any_of(
      model.parameters.rows,
      [](const model::Parameter& row) { return row.role == model::Role::expert; });
  if (has_experts)
    log::warn(
        "experts are in 4 bits as well; transformers stores them differently and may not load this "
        "folder; finetune does");
  return core::exit_done;
}

}  // namespace finetune::app
