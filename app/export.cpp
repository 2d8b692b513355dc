// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <filesystem>

#include "checkpoint/find.hpp"
#include "checkpoint/read.hpp"
#include "commands.hpp"
#include "core/error.hpp"
#include "core/file.hpp"
#include "core/json.hpp"
#include "core/log.hpp"
#include "core/text.hpp"
#include "train/state.hpp"
#include "weights/export_folder.hpp"

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

weights::ExportPlan plan_export(const Arguments& arguments, const checkpoint::Found& found) {
  weights::ExportPlan plan;
  plan.max_shard_size_bytes = parse_bytes(arguments.max_shard_size);
  const core::Json& source_dtypes = found.state.at("source_dtypes");
  for (const checkpoint::TensorEntry& tensor : found.manifest.tensors) {
    if (tensor.kind != train::kind_master) continue;
    plan.tensors.push_back(
        {tensor.name, export_dtype(arguments, source_dtypes, tensor.name), tensor.shape});
  }
  return plan;
}

/// config.json names the dtype of the weights beside it.
void name_dtype(const std::filesystem::path& out, const std::string& dtype) {
  constexpr std::int64_t largest_config_bytes = std::int64_t{1} << 20;
  const std::filesystem::path path = out / "config.json";
  core::Json config = core::read_json(path, largest_config_bytes);
  config[config.contains("dtype") ? "dtype" : "torch_dtype"] = dtype;
  core::write_text_atomically(path, config.dump(2) + "\n");
}

}  // namespace

int run_export(const Arguments& arguments) {
  const checkpoint::Found found = checkpoint::open(arguments.path);
  const std::filesystem::path model_folder =
      arguments.model.empty() ? found.state.at("model_folder").get<std::string>() : arguments.model;
  if (!std::filesystem::exists(model_folder / "config.json")) {
    core::fail(core::ErrorKind::input,
               {(model_folder / "config.json").string(), "is not there",
                "configuration and tokenizer are copied from the model the run began with",
                "Name the folder with --model."});
  }
  const weights::ExportPlan plan = plan_export(arguments, found);
  weights::export_folder(
      arguments.second, plan,
      [&](std::string_view name, std::int64_t first, std::span<float> piece) {
        checkpoint::read_tensor(found, train::kind_master, name, first, piece);
      },
      model_folder);
  if (!arguments.dtype.empty()) name_dtype(arguments.second, arguments.dtype);
  std::int64_t bytes = 0;
  for (const weights::TensorSpec& tensor : plan.tensors)
    bytes += tensor.size_bytes();
  log::info(fmt::format("wrote {} from {}: {} tensors, {}", arguments.second, found.folder.string(),
                        plan.tensors.size(), core::human_bytes(bytes)));
  return core::exit_done;
}

}  // namespace finetune::app
