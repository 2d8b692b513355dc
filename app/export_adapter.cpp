// SPDX-License-Identifier: Apache-2.0
// Exports of runs that trained an adapter: as PEFT has it, or in the weights of the model.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <string_view>

#include "base/adapter_base.hpp"
#include "base/initial_weights.hpp"
#include "base/merge.hpp"
#include "base/packed_files.hpp"
#include "checkpoint/format/layout.hpp"
#include "comm/device.hpp"
#include "commands.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "core/text.hpp"
#include "export.hpp"
#include "export_frozen.hpp"
#include "kept_starts.hpp"
#include "model/device.hpp"
#include "model/names.hpp"
#include "model_card.hpp"
#include "peft_names.hpp"
#include "serving.hpp"
#include "train/input/described_model.hpp"
#include "train/run/stored_parts.hpp"
#include "weights/folder.hpp"
#include "weights/peft.hpp"
#include "weights/peft_config.hpp"

namespace finetune::app {
namespace {

std::filesystem::path state_path(const ExportJob& job) {
  return job.found.folder / checkpoint::state_name;
}

model::AdapterSettings settings_of(const ExportJob& job) {
  const checkpoint::AdapterState& adapter = *job.found.state.adapter;
  adapter.require(state_path(job));
  model::AdapterSettings settings =
      weights::read_peft_config(adapter.config, state_path(job).string(), job.registry.adapters)
          .settings;
  settings.name = adapter.name;
  settings.path = job.found.folder.string();
  settings.double_quant = adapter.double_quant;
  if (model::find_adapter(job.registry.adapters, settings.name) == nullptr)
    core::fail(core::ErrorKind::input,
               {state_path(job).string(),
                fmt::format("has the adapter \"{}\"", core::one_line(settings.name)),
                "this program has none of that name", "Export it with the program that wrote it."});
  return settings;
}

/// The base and what the adapter's run made of it.
train::DescribedModel describe(const ExportJob& job) {
  train::DescribedModel model =
      train::describe_model({}, job.model_folder, job.registry,
                            train::outputs_of(job.found.state.config.value_or(core::Json())));
  train::rewrite_for(settings_of(job), state_path(job).string(), job.registry, model.parameters);
  const auto& base = job.found.state.base;
  if (const auto recipe = base ? base::kept_in_fp8(*base) : std::nullopt)
    model::keep_in_fp8(*recipe, model.parameters);
  for (const model::Parameter& row : model.parameters.rows) {
    if (!row.trainable) continue;
    const auto i = job.found.manifest.find(train::kind_master, row.name);
    if (i >= 0 && job.found.manifest.tensors[static_cast<std::size_t>(i)].shape == row.shape)
      continue;
    core::fail(core::ErrorKind::input,
               {job.found.folder.string(), fmt::format("has no {} of this shape", row.name),
                fmt::format("the model in {} needs it", job.model_folder.string()),
                "Name the model that the run began with by --model."});
  }
  return model;
}

core::DType dtype_of(const ExportJob& job, const train::DescribedModel& model,
                     const weights::ModelFiles& files, const model::Parameter& row) {
  if (!job.arguments.dtype.empty()) return app::dtype_of(job.arguments.dtype);
  return row.packing.in_files || row.is_new ? model.architecture.file_dtype
                                            : files.entry(row.name).dtype;
}

base::MergeInto merge_into(const ExportJob& job, const train::DescribedModel& model) {
  if (job.arguments.merge_into == "trained") return base::MergeInto::trained;
  if (!model.quantization.packing.is_dense())
    core::fail(core::ErrorKind::command_line,
               {"finetune export --merge-into original",
                job.model_folder.string() + " holds the weights in few bits", "there are no others",
                "Leave --merge-into out."});
  return base::MergeInto::original;
}

/// config.json of the merged model: nothing of it is packed.
std::map<std::string, std::string> merged_texts(const ExportJob& job,
                                                const train::DescribedModel& model) {
  core::Json config = config_of(job.model_folder);
  const bool was_packed =
      config.erase("quantization_config") > 0 || !model.quantization.packing.is_dense();
  if (was_packed && !config.contains("dtype") && !config.contains("torch_dtype")) {
    const core::DType dtype = model.architecture.file_dtype;
    config["torch_dtype"] = dtype == core::DType::bf16  ? "bfloat16"
                            : dtype == core::DType::f16 ? "float16"
                                                        : "float32";
  }
  return texts_of(job, std::move(config), was_packed);
}

void tell_merged(const base::MergeReport& report, base::MergeInto into) {
  log::info(base::to_string(report, into));
  const std::string rounding = base::rounding_to_string(report);
  if (rounding.empty()) return;
  if (base::rounding_part(report) > base::largest_rounding_part) {
    log::warn(rounding);
  } else {
    log::info(rounding);
  }
}

/// Where a tensor of PEFT's file lies in the checkpoint.
struct StoredTensor {
  enum class Way { same, doubled, transposed };
  std::string name;
  std::vector<std::int64_t> shape;  ///< in PEFT's file
  std::int64_t first = 0;           ///< element
  Way way = Way::same;
  std::vector<std::int64_t> stored_shape = {};  ///< of what is not the same there
};

/// The tensors of PEFT's file, by name. `config` is the checkpoint's.
std::map<std::string, StoredTensor, std::less<>> stored_tensors(
    const ExportJob& job, const core::Json& config, const model::ParameterTable& table) {
  const std::string prefix = model::peft_prefix;
  const std::string head = prefix + weights::tied_head;
  const std::string& embedding = table.row(table.decoder.embedding).name;
  const std::string of_embedding = prefix + model::module_of(embedding) + ".lora_embedding_";
  const bool keeps_ties = config.value("ensure_weight_tying", false);
  const bool doubles = keeps_starts(job.found.state.adapter->config);
  const auto token_rows =
      weights::read_peft_config(config, state_path(job).string(), job.registry.adapters).token_rows;
  std::map<std::string, StoredTensor, std::less<>> stored;
  for (const checkpoint::TensorEntry& tensor : job.found.manifest.tensors) {
    if (tensor.kind != train::kind_master || is_start(tensor.name)) continue;
    const std::string name = model::name_in_transformers(tensor.name);
    if (doubles && !start_of(tensor.name).empty()) {
      stored[name] = {tensor.name, doubled(tensor.name, tensor.shape), 0,
                      StoredTensor::Way::doubled, tensor.shape};
      continue;
    }
    if (keeps_ties && tensor.name.starts_with(of_embedding)) {
      // The parts of the tied head, which are those of the embedding the other way round.
      const bool is_a = tensor.name.ends_with("_A");
      stored[head + (is_a ? ".lora_B.weight" : ".lora_A.weight")] = {
          tensor.name,
          {tensor.shape.at(1), tensor.shape.at(0)},
          0,
          StoredTensor::Way::transposed,
          tensor.shape};
    }
    const bool is_part = tensor.name.starts_with(prefix);
    const auto rows = token_rows.find(model::last_part(model::module_of(tensor.name)));
    if (!is_part && rows != token_rows.end()) {
      const std::int64_t columns = tensor.shape.at(1);
      stored[weights::token_rows_name(name)] = {
          tensor.name, {std::ssize(rows->second), columns}, rows->second.front() * columns};
      continue;
    }
    stored[is_part ? name : prefix + name] = {tensor.name, tensor.shape};
    // PEFT keeps a tie only if it finds the tensor under both names.
    if (keeps_ties && tensor.name == embedding)
      stored[head + ".weight"] = {tensor.name, tensor.shape};
  }
  return stored;
}

/// The tokenizer with the new tokens of the run, if it has any: the base has another.
void add_tokenizer(const ExportJob& job, std::map<std::string, std::string>& texts) {
  if (!weights::is_in_folder(job.model_folder, weights::changes_name)) return;
  constexpr std::int64_t largest_text_bytes = std::int64_t{256} << 20;
  for (const char* name :
       {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"})
    if (weights::is_in_folder(job.model_folder, name) && !texts.contains(name))
      texts[name] = weights::read_text_in_folder(job.model_folder, name, largest_text_bytes);
}

/// Elements [first, ...) of a tensor of PEFT's file.
void read_stored(const StoredTensor& tensor, std::int64_t first, std::span<float> piece,
                 const ExportJob& job) {
  using enum StoredTensor::Way;
  const auto read = [&](const std::string& name, std::int64_t begin, std::span<float> values) {
    job.read_trained(name, begin, values);
  };
  if (tensor.way == same) return read(tensor.name, tensor.first + first, piece);
  if (tensor.way == doubled)
    return read_doubled(tensor.name, tensor.stored_shape, first, piece, read);
  std::vector<float> all(static_cast<std::size_t>(core::num_elements(tensor.stored_shape)));
  read(tensor.name, 0, all);
  const std::int64_t rows = tensor.stored_shape.at(0), columns = tensor.stored_shape.at(1);
  for (std::int64_t i = 0; i < std::ssize(piece); ++i)
    piece[static_cast<std::size_t>(i)] =
        all[static_cast<std::size_t>((first + i) % rows * columns + (first + i) / rows)];
}

}  // namespace

void export_adapter(const ExportJob& job) {
  const model::ParameterTable table = describe(job).parameters;
  const std::string base = base_model_name(config_of(job.model_folder), job.model_folder);
  core::Json config = job.found.state.adapter->config;
  if (keeps_starts(config)) config = without_starts(config);
  require_loaded_by_peft(config, table, state_path(job).string());
  const auto stored = stored_tensors(job, config, table);
  config = with_names_of_transformers(std::move(config), table);
  config["base_model_name_or_path"] = base;
  weights::ExportPlan plan;
  plan.stem = "adapter_model";
  plan.max_shard_size_bytes = std::numeric_limits<std::int64_t>::max();  // PEFT reads one file
  plan.sums = job.sums();
  plan.texts = {{weights::peft_config_name, config.dump(2) + "\n"}};
  add_card(job, base, "peft", plan.texts);
  add_chat_template(job, false, plan.texts);
  // Of checkpoints of older programs too little is known to compare it with anything.
  const auto& beside = job.found.state.base;
  if (beside && !beside->packing.empty())
    plan.texts[base::adapter_base_name] = beside->to_json().dump(2) + "\n";
  add_tokenizer(job, plan.texts);
  const core::DType dtype =
      job.arguments.dtype.empty() ? core::DType::f32 : dtype_of(job.arguments.dtype);
  for (const auto& [name, tensor] : stored)
    plan.tensors.push_back({name, dtype, tensor.shape});
  weights::export_folder(job.arguments.second, plan,
                         [&](std::string_view name, std::int64_t first, std::span<float> piece) {
                           read_stored(stored.find(name)->second, first, piece, job);
                         },
                         {});
  tell_written(job, plan);
  for (const std::string& note : vllm_notes(config))
    log::info(note);
}

void export_merged(const ExportJob& job) {
  const train::DescribedModel model = describe(job);
  const base::MergeInto into = merge_into(job, model);
  const auto files = weights::ModelFiles::open(job.model_folder);
  base::require_same_model(files, model.architecture, model.parameters);
  base::require_zero_biases(files, model.parameters);
  require_base(job, files, model.parameters);

  weights::ExportPlan plan;
  plan.max_shard_size_bytes = parse_bytes(job.arguments.max_shard_size);
  plan.sums = job.sums();
  plan.texts = merged_texts(job, model);
  std::map<std::string, int, std::less<>> rows;
  std::vector<core::DType> dtypes(model.parameters.rows.size(), core::DType::f32);
  for (std::size_t i = 0; i < dtypes.size(); ++i) {
    const model::Parameter& row = model.parameters.rows[i];
    if (row.adapts >= 0) continue;
    dtypes[i] = dtype_of(job, model, files, row);
    rows[row.name] = static_cast<int>(i);
    plan.tensors.push_back({row.name, dtypes[i], row.shape});
    if (row.is_by_inputs) plan.transposed.insert(row.name);
  }
  for (weights::TensorSpec& tensor : foreign_tensors(model.parameters.foreign, files))
    plan.tensors.push_back(std::move(tensor));
  const comm::Device device = comm::choose_first_device(job.arguments.merges_on);
  if (device.index >= 0) log::info(fmt::format("merges on {}", comm::current_gpu()));
  base::Merge merge(
      files, model.parameters,
      [&](const model::Parameter& row, std::int64_t first, std::span<float> values) {
        job.read_trained(row.name, first, values);
      },
      dtypes, into, model::compute_device(device.index));
  weights::export_folder(
      job.arguments.second, plan,
      [&](std::string_view name, std::int64_t first, std::span<float> piece) {
        const auto row = rows.find(name);
        if (row == rows.end()) return read_piece(files, name, first, piece);
        merge.read(row->second, first, piece);
      },
      job.model_folder);
  tell_written(job, plan);
  tell_merged(merge.report(), into);
}

}  // namespace finetune::app
