// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <string>

#include "checkpoint/best.hpp"
#include "checkpoint/find.hpp"
#include "checkpoint/read.hpp"
#include "commands.hpp"
#include "core/error.hpp"
#include "core/json.hpp"
#include "core/log.hpp"
#include "core/text.hpp"
#include "model_card.hpp"
#include "train/state.hpp"
#include "weights/export_folder.hpp"
#include "weights/folder.hpp"

namespace finetune::app {
namespace {

core::DType dtype_of(const std::string& word) {
  return word == "float32"    ? core::DType::f32
         : word == "bfloat16" ? core::DType::bf16
                              : core::DType::f16;
}

/// The dtype a tensor is written in: the one asked for, else that of the file it once came from.
core::DType export_dtype(const Arguments& arguments, const core::Json& source_dtypes,
                         const std::string& name) {
  if (!arguments.dtype.empty()) return dtype_of(arguments.dtype);
  return core::parse_dtype(source_dtypes.value(name, std::string("F32")))
      .value_or(core::DType::f32);
}

/// What lies beside the weights and is not a copy: the card, and what says more than the source
/// did.
std::map<std::string, std::string> texts_of(const Arguments& arguments,
                                            const checkpoint::Found& found,
                                            const std::filesystem::path& model_folder) {
  constexpr std::int64_t largest_config_bytes = std::int64_t{1} << 20;
  core::Json config = core::parse_json(
      weights::read_text_in_folder(model_folder, "config.json", largest_config_bytes),
      (model_folder / "config.json").string());
  std::map<std::string, std::string> texts;
  texts["README.md"] = model_card(found.state, base_model_name(config, model_folder));
  if (!weights::is_in_folder(model_folder, "generation_config.json"))
    texts["generation_config.json"] = generation_config(config);
  if (!arguments.dtype.empty()) {
    // config.json names the dtype of the weights beside it.
    config[config.contains("dtype") ? "dtype" : "torch_dtype"] = arguments.dtype;
    texts["config.json"] = config.dump(2) + "\n";
  }
  return texts;
}

weights::ExportPlan plan_export(const Arguments& arguments, const checkpoint::Found& found,
                                const std::filesystem::path& model_folder) {
  weights::ExportPlan plan;
  plan.max_shard_size_bytes = parse_bytes(arguments.max_shard_size);
  plan.texts = texts_of(arguments, found, model_folder);
  const core::Json& source_dtypes = found.state.at("source_dtypes");
  for (const checkpoint::TensorEntry& tensor : found.manifest.tensors) {
    if (tensor.kind != train::kind_master) continue;
    plan.tensors.push_back(
        {tensor.name, export_dtype(arguments, source_dtypes, tensor.name), tensor.shape});
  }
  return plan;
}

}  // namespace

int run_export(const Arguments& arguments) {
  const checkpoint::Found found =
      arguments.is_best ? checkpoint::open_best(arguments.path) : checkpoint::open(arguments.path);
  const std::filesystem::path model_folder =
      arguments.model.empty() ? found.state.at("model_folder").get<std::string>() : arguments.model;
  if (!std::filesystem::exists(model_folder / "config.json")) {
    core::fail(core::ErrorKind::input,
               {(model_folder / "config.json").string(), "is not there",
                "configuration and tokenizer are copied from the model the run began with",
                "Name the folder with --model."});
  }
  const weights::ExportPlan plan = plan_export(arguments, found, model_folder);
  weights::export_folder(
      arguments.second, plan,
      [&](std::string_view name, std::int64_t first, std::span<float> piece) {
        checkpoint::read_tensor(found, train::kind_master, name, first, piece);
      },
      model_folder);
  std::int64_t bytes = 0;
  for (const weights::TensorSpec& tensor : plan.tensors)
    bytes += tensor.size_bytes();
  log::info(fmt::format("wrote {} from {}: {} tensors, {}", arguments.second, found.folder.string(),
                        plan.tensors.size(), core::human_bytes(bytes)));
  return core::exit_done;
}

}  // namespace finetune::app
