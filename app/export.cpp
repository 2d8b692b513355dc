// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
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
#include "weights/model_files.hpp"

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

/// Tensors of the source model that are of parts which were not trained, if it has such parts.
std::vector<weights::TensorSpec> foreign_tensors(const train::Registry& registry,
                                                 const std::filesystem::path& model_folder,
                                                 const weights::ModelFiles* files) {
  std::vector<weights::TensorSpec> tensors;
  if (files == nullptr) return tensors;
  const auto identified = model::identify(
      model::read_config(model_folder), (model_folder / "config.json").string(), registry.families);
  const auto prefixes = identified.family->describe(identified.architecture).foreign;
  for (const std::string& name : files->names()) {
    const auto begins = [&](const std::string& prefix) { return name.starts_with(prefix); };
    if (std::none_of(prefixes.begin(), prefixes.end(), begins)) continue;
    const auto& entry = files->entry(name);
    tensors.push_back({name, entry.dtype, entry.shape});
  }
  return tensors;
}

/// The weights the run began with, if they are (still) there.
std::optional<weights::ModelFiles> source_files(const std::filesystem::path& model_folder) {
  if (!std::filesystem::exists(model_folder / "model.safetensors") &&
      !std::filesystem::exists(model_folder / "model.safetensors.index.json"))
    return std::nullopt;
  return weights::ModelFiles::open(model_folder);
}

void read_piece(const weights::ModelFiles& files, std::string_view name, std::int64_t first,
                std::span<float> piece) {
  files.read({.name = std::string(name),
              .shape = files.entry(name).shape,
              .dtype = core::DType::f32,
              .offset = first,
              .count = std::ssize(piece)},
             std::as_writable_bytes(piece));
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

int run_export(const Arguments& arguments, const train::Registry& registry) {
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
  weights::ExportPlan plan = plan_export(arguments, found, model_folder);
  const std::optional<weights::ModelFiles> files = source_files(model_folder);
  const auto foreign = foreign_tensors(registry, model_folder, files ? &*files : nullptr);
  std::set<std::string, std::less<>> foreign_names;
  for (const weights::TensorSpec& tensor : foreign)
    foreign_names.insert(tensor.name);
  plan.tensors.insert(plan.tensors.end(), foreign.begin(), foreign.end());
  weights::export_folder(
      arguments.second, plan,
      [&](std::string_view name, std::int64_t first, std::span<float> piece) {
        if (foreign_names.contains(name)) {
          read_piece(*files, name, first, piece);
        } else {
          checkpoint::read_tensor(found, train::kind_master, name, first, piece);
        }
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
