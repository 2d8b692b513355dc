// SPDX-License-Identifier: Apache-2.0
// A model in 4 bits, so that the next start reads a quarter of the bytes and quantises nothing; or
// in 8 bits, for programs that serve it.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "base/fp8_export.hpp"
#include "base/initial_weights.hpp"
#include "base/nf4_files.hpp"
#include "commands.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "core/python_json.hpp"
#include "core/text.hpp"
#include "export.hpp"
#include "model/fp8.hpp"
#include "model_card.hpp"
#include "train/input/described_model.hpp"
#include "weights/export_folder.hpp"
#include "weights/folder.hpp"

namespace finetune::app {
namespace {

bool is_fp8(const Arguments& arguments) {
  return arguments.format != "nf4";
}

/// Matrices of blocks, but of experts in one tensor, which such files do not have. With scales of
/// blocks those alone whose rows are of whole ones, if there are any: activations are quantised by
/// as many elements.
void mark_fp8(const Arguments& arguments, model::ParameterTable& table) {
  const bool has_blocks = arguments.format == "fp8-block";
  const auto is_whole = [](const model::Parameter& row) {
    return row.shape.back() % model::fp8_block == 0;
  };
  std::vector<model::Parameter*> all;
  for (model::Parameter& row : table.rows)
    if (model::may_have_fp8(row) && row.count() > 0) all.push_back(&row);
  const auto num_whole =
      std::ranges::count_if(all, [&](const auto* row) { return is_whole(*row); });
  const bool leaves_some = has_blocks && num_whole > 0;
  for (model::Parameter* row : all)
    if (!leaves_some || is_whole(*row))
      row->packing = {.kind = model::Packing::Kind::fp8, .in_files = true, .nests = false};
  const auto num_others = std::ssize(all) - num_whole;
  if (!has_blocks || num_others == 0) return;
  if (leaves_some)
    log::info(fmt::format("{} matrices stay as they are: their rows are not of whole blocks of 128",
                          num_others));
  else
    log::warn(
        "no matrix has rows of whole blocks of 128: programs that quantise activations by as "
        "many elements cannot serve this model; --format fp8 has no blocks");
}

void mark_nf4(const Arguments& arguments, const train::Registry& registry,
              model::ParameterTable& table) {
  model::AdapterSettings settings;
  settings.name = "qlora";
  settings.double_quant = !arguments.is_single;
  model::ParameterTable quantised = table;
  train::rewrite_for(settings, arguments.path, registry, quantised);
  for (std::size_t i = 0; i < table.rows.size(); ++i)
    table.rows[i].packing = quantised.rows[i].packing;
}

/// The model with the rows marked that are quantised.
train::DescribedModel describe(const Arguments& arguments, const train::Registry& registry) {
  train::DescribedModel model = train::describe_model({}, arguments.path, registry);
  if (!model.quantization.packing.is_dense())
    core::fail(core::ErrorKind::input, {arguments.path, "is quantised already",
                                        "config.json says so", "Name the original model."});
  for (const model::Parameter& row : model.parameters.rows)
    if (row.is_by_inputs)
      core::fail(core::ErrorKind::input,
                 {arguments.path, fmt::format("has {} by inputs, not by outputs", row.name),
                  "no format of packed files has matrices so",
                  "Leave it as it is; with [adapter] name = \"qlora\" it is quantised in memory."});
  if (is_fp8(arguments)) {
    mark_fp8(arguments, model.parameters);
  } else {
    mark_nf4(arguments, registry, model.parameters);
  }
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

/// What is written of a model, and by whom.
struct Quantised {
  std::vector<weights::TensorSpec> tensors;
  core::Json config;  ///< config.json's "quantization_config"
  std::string kind;   ///< in words
  weights::ReadBytes read;
};

Quantised quantised(const Arguments& arguments, const weights::ModelFiles& files,
                    const train::DescribedModel& model, const std::string& dtype) {
  if (is_fp8(arguments)) {
    const bool has_blocks = arguments.format == "fp8-block";
    const auto packed = std::make_shared<base::Fp8Export>(
        files, model.parameters, has_blocks ? base::Fp8Scales::block : base::Fp8Scales::tensor);
    return {packed->tensors(), packed->config(),
            has_blocks ? "FP8 with a scale per block" : "FP8 with a scale per matrix",
            [packed](auto... piece) { packed->read(piece...); }};
  }
  const auto packed = std::make_shared<base::Nf4Files>(files, model.parameters);
  return {packed->tensors(), base::nf4_config(!arguments.is_single, dtype),
          arguments.is_single ? "NF4" : "NF4 with double quantisation",
          [packed](auto... piece) { packed->read(piece...); }};
}

/// Programs that read the folder may have other ideas of experts.
void warn_of_experts(const Arguments& arguments, const model::ParameterTable& table) {
  const auto is_packed_expert = [](const model::Parameter& row) {
    return row.role == model::Role::expert && !row.packing.is_dense();
  };
  if (std::ranges::any_of(table.rows, is_packed_expert))
    log::warn(fmt::format(
        "experts are in {} bits as well; transformers stores them differently and may not load "
        "this folder; finetune does",
        is_fp8(arguments) ? 8 : 4));
}

}  // namespace

int run_quantize(const Arguments& arguments, const train::Registry& registry) {
  const train::DescribedModel model = describe(arguments, registry);
  const auto files = weights::ModelFiles::open(arguments.path);
  train::DescribedModel dense = model;
  for (model::Parameter& row : dense.parameters.rows)
    row.packing = {};
  base::require_same_model(files, dense.architecture, dense.parameters);
  core::Json config = config_of(arguments.path);
  const Quantised packed =
      quantised(arguments, files, model, torch_dtype(config, model.architecture));
  config["quantization_config"] = packed.config;
  weights::ExportPlan plan;
  plan.tensors = packed.tensors;
  plan.max_shard_size_bytes = parse_bytes(arguments.max_shard_size);
  plan.texts["config.json"] = core::dump_python_json(config);
  if (!weights::is_in_folder(arguments.path, "generation_config.json"))
    plan.texts["generation_config.json"] = generation_config(config);
  // A model that was trained brings its card.
  for (const char* name : {"README.md", loss_picture_name})
    if (weights::is_in_folder(arguments.path, name))
      plan.texts[name] =
          weights::read_text_in_folder(arguments.path, name, core::largest_config_bytes);
  plan.sums = sums_name;
  weights::export_bytes(arguments.second, plan, packed.read, arguments.path);
  log::info(fmt::format("wrote {}: {} in {}, was {}", arguments.second,
                        core::human_bytes(bytes_of(plan.tensors)), packed.kind,
                        core::human_bytes(files.size_bytes())));
  warn_of_experts(arguments, model.parameters);
  return core::exit_done;
}

}  // namespace finetune::app
