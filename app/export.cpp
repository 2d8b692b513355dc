// SPDX-License-Identifier: Apache-2.0
#include "export.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <utility>

#include "checkpoint/format/layout.hpp"
#include "checkpoint/format/read.hpp"
#include "checkpoint/load/best.hpp"
#include "commands.hpp"
#include "core/error.hpp"
#include "core/json.hpp"
#include "core/log.hpp"
#include "core/python_json.hpp"
#include "core/text.hpp"
#include "export_frozen.hpp"
#include "model_card.hpp"
#include "model_folders.hpp"
#include "plan/optimizer.hpp"
#include "tokenizer/tokenizer.hpp"
#include "train/run/stored_parts.hpp"
#include "weights/folder.hpp"

namespace finetune::app {
namespace {

/// The dtype a tensor is written in: the one asked for, else that of the file it once came from.
core::DType export_dtype(const Arguments& arguments, const checkpoint::Texts& source_dtypes,
                         const std::string& name) {
  if (!arguments.dtype.empty()) return dtype_of(arguments.dtype);
  const auto source = source_dtypes.find(name);
  if (source == source_dtypes.end()) return core::DType::f32;
  return core::parse_dtype(source->second).value_or(core::DType::f32);
}

/// The weights the run began with, if they are (still) there.
std::optional<weights::ModelFiles> source_files(const std::filesystem::path& model_folder) {
  const std::array files = {"model.safetensors", "model.safetensors.index.json",
                            weights::changes_name};
  if (std::ranges::none_of(
          files, [&](const char* name) { return std::filesystem::exists(model_folder / name); }))
    return std::nullopt;
  return weights::ModelFiles::open(model_folder);
}

/// As the model's family has its tensors.
model::ParameterTable described(const ExportJob& job) {
  const auto identified =
      model::identify(model::read_config(job.model_folder),
                      (job.model_folder / "config.json").string(), job.registry.families);
  return identified.family->describe(identified.architecture);
}

/// The model that a run without an adapter trained.
void export_whole(const ExportJob& job) {
  weights::ExportPlan plan;
  plan.max_shard_size_bytes = parse_bytes(job.arguments.max_shard_size);
  plan.sums = job.sums();
  core::Json config = config_of(job.model_folder);
  // What it began with may have been packed; what was trained is not.
  const bool was_packed = config.erase("quantization_config") > 0;
  plan.texts = texts_of(job, std::move(config), was_packed);
  for (const checkpoint::TensorEntry& tensor : job.found.manifest.tensors) {
    if (tensor.kind != train::kind_master) continue;
    plan.tensors.push_back({tensor.name,
                            export_dtype(job.arguments, job.found.state.source_dtypes, tensor.name),
                            tensor.shape});
  }
  const std::optional<weights::ModelFiles> files = source_files(job.model_folder);
  const FrozenTensors frozen(job, files);
  for (const weights::TensorSpec& tensor : frozen.specs()) {
    const core::DType dtype =
        job.arguments.dtype.empty() ? tensor.dtype : dtype_of(job.arguments.dtype);
    plan.tensors.push_back({tensor.name, dtype, tensor.shape});
  }
  const model::ParameterTable table = described(job);
  for (const model::Parameter& row : table.rows)
    if (row.is_by_inputs) plan.transposed.insert(row.name);
  std::set<std::string, std::less<>> foreign;
  if (files) {
    for (weights::TensorSpec& tensor : foreign_tensors(table.foreign, *files)) {
      foreign.insert(tensor.name);
      plan.tensors.push_back(std::move(tensor));
    }
  }
  weights::export_folder(
      job.arguments.second, plan,
      [&](std::string_view name, std::int64_t first, std::span<float> piece) {
        if (foreign.contains(name)) {
          read_piece(*files, name, first, piece);
        } else if (frozen.has(name)) {
          frozen.read(name, first, piece);
        } else {
          job.read_trained(name, first, piece);
        }
      },
      job.model_folder);
  tell_written(job, plan);
}

void require_ema(const ExportJob& job) {
  const auto& tensors = job.found.manifest.tensors;
  const bool is_there = std::ranges::any_of(
      tensors, [](const auto& tensor) { return tensor.kind == plan::ema_state; });
  if (is_there && job.found.step > 0) return;
  core::fail(core::ErrorKind::command_line,
             {"finetune export --ema", job.found.folder.string() + " has no mean of weights",
              is_there ? "it is of before the first step" : "its run had train.ema_decay = 0",
              "Leave --ema out."});
}

void require_model(const ExportJob& job) {
  if (std::filesystem::exists(job.model_folder / "config.json")) return;
  core::fail(core::ErrorKind::input,
             {(job.model_folder / "config.json").string(), "is not there",
              "configuration and tokenizer are copied from the model the run began with",
              "Name the folder with --model."});
}

}  // namespace

core::DType dtype_of(const std::string& word) {
  return word == "float32"    ? core::DType::f32
         : word == "bfloat16" ? core::DType::bf16
                              : core::DType::f16;
}

namespace {

/// weight + factor * (state - weight).
struct Evaluated {
  std::string state;
  float factor = 0;
};

/// Steps of a checkpoint that were not skipped.
std::int64_t num_updates(const checkpoint::RunState& state) {
  const core::Json& scale = state.loss_scale;
  return state.step - (scale.is_object() ? scale.value("skipped_in_all", std::int64_t{0}) : 0);
}

/// What the run's optimizer evaluates, if that is not what it trains.
std::optional<Evaluated> evaluated_weights(const ExportJob& job) {
  const checkpoint::RunState& state = job.found.state;
  const auto value_of = [&](const std::string& key) {
    const auto found = state.fixed.find("optimizer." + key);
    return found == state.fixed.end() ? std::string() : found->second;
  };
  const auto& kinds = job.registry.optimizers;
  const auto kind = std::ranges::find_if(
      kinds, [&](const optim::Kind& each) { return value_of("name") == '"' + each.name() + '"'; });
  if (kind == kinds.end() || !kind->evaluated || num_updates(state) == 0) return std::nullopt;
  optim::OptimizerSettings settings;
  for (const optim::OptimizerKey& key : kind->keys)
    if (const std::string text = value_of(std::string(key.name)); !text.empty())
      settings.numbers[std::string(key.name)] = std::strtod(text.c_str(), nullptr);
  return Evaluated{kind->evaluated->state, static_cast<float>(kind->evaluated->factor(settings))};
}

}  // namespace

void ExportJob::read_trained(std::string_view name, std::int64_t first,
                             std::span<float> piece) const {
  if (arguments.is_ema) return checkpoint::read_tensor(found, plan::ema_state, name, first, piece);
  checkpoint::read_tensor(found, train::kind_master, name, first, piece);
  const auto evaluated = evaluated_weights(*this);
  if (!evaluated) return;
  std::vector<float> state(piece.size());
  checkpoint::read_tensor(found, evaluated->state, name, first, state);
  for (std::size_t i = 0; i < piece.size(); ++i)
    piece[i] += (state[i] - piece[i]) * evaluated->factor;
}

std::string ExportJob::sums() const {
  return arguments.writes_sums ? sums_name : "";
}

core::Json config_of(const std::filesystem::path& model_folder) {
  if (!weights::is_in_folder(model_folder, "config.json")) return {};
  return core::parse_python_json(
      weights::read_text_in_folder(model_folder, "config.json", core::largest_config_bytes),
      (model_folder / "config.json").string());
}

namespace {

/// A token that no text holds: the one that ends them.
core::Json padding_of(const core::Json& config, const std::filesystem::path& model_folder) {
  const core::Json end = config.value("eos_token_id", core::Json());
  if (end.is_number_integer()) return end;
  if (end.is_array() && !end.empty()) return end.front();
  const auto eos = tokenizer::Tokenizer::load(model_folder).find_eos_id();
  return eos ? core::Json(*eos) : core::Json();
}

}  // namespace

void add_card(const ExportJob& job, const std::string& base_model, const std::string& library,
              std::map<std::string, std::string>& texts) {
  RunRecord record = read_record(job.found.folder.parent_path(), job.found.step);
  checkpoint::RunState state = job.found.state;
  if (job.arguments.is_ema) {
    // Those were measured on the weights that were trained.
    state.validation_loss.reset();
    state.score.reset();
    record.evaluation.clear();
    record.weights = "exponential mean over the steps (train.ema_decay)";
  }
  texts["README.md"] = model_card(state, base_model, record, library);
  if (!record.loss_svg.empty()) texts[loss_picture_name] = record.loss_svg;
}

std::map<std::string, std::string> texts_of(const ExportJob& job, core::Json config, bool changed) {
  std::map<std::string, std::string> texts;
  add_card(job, base_model_name(config, job.model_folder), "transformers", texts);
  if (!weights::is_in_folder(job.model_folder, "generation_config.json"))
    texts["generation_config.json"] = generation_config(config);
  if (!job.arguments.dtype.empty()) {
    // config.json names the dtype of the weights beside it.
    config[config.contains("dtype") ? "dtype" : "torch_dtype"] = job.arguments.dtype;
    changed = true;
  }
  if (const auto& changes = job.found.state.config; changes && changes->is_object()) {
    config.update(*changes);
    // Transformers finds a text's last token by it.
    if (config.value("pad_token_id", core::Json()).is_null())
      config["pad_token_id"] = padding_of(config, job.model_folder);
    changed = true;
  }
  if (changed) texts["config.json"] = core::dump_python_json(config);
  add_chat_template(job, true, texts);
  return texts;
}

std::vector<weights::TensorSpec> foreign_tensors(const std::vector<std::string>& prefixes,
                                                 const weights::ModelFiles& files) {
  std::vector<weights::TensorSpec> tensors;
  for (const std::string& name : files.names()) {
    const auto begins = [&](const std::string& prefix) { return name.starts_with(prefix); };
    if (std::none_of(prefixes.begin(), prefixes.end(), begins)) continue;
    const auto& entry = files.entry(name);
    tensors.push_back({name, entry.dtype, entry.shape});
  }
  return tensors;
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

void tell_written(const ExportJob& job, const weights::ExportPlan& plan) {
  std::int64_t bytes = 0;
  for (const weights::TensorSpec& tensor : plan.tensors)
    bytes += tensor.size_bytes();
  log::info(fmt::format("wrote {} from {}: {} tensors, {}", job.arguments.second,
                        job.found.folder.string(), plan.tensors.size(), core::human_bytes(bytes)));
}

int run_export(const Arguments& arguments, const train::Registry& registry) {
  if (is_by_way(arguments)) return export_by_way(arguments, registry);
  if (arguments.dtype == "q8_0")
    core::fail(core::ErrorKind::command_line,
               {"finetune export", "--dtype q8_0 is for a file that ends in .gguf",
                "a Hugging Face folder has float32, bfloat16, float16 or FP8",
                "Name one of these, or such a file."});
  if (weights::is_in_folder(arguments.path, "config.json"))
    core::fail(core::ErrorKind::command_line,
               {"finetune export", arguments.path + " is a model already",
                "what is exported as a folder is a checkpoint",
                "Name a file that ends in .gguf, or use --dtype fp8."});
  ExportJob job{.arguments = arguments,
                .registry = registry,
                .found = arguments.is_best ? checkpoint::open_best(arguments.path)
                                           : checkpoint::open(arguments.path),
                .model_folder = arguments.model};
  if (arguments.model.empty()) job.model_folder = job.found.state.model_folder;
  if (job.model_folder.empty())
    core::fail(core::ErrorKind::input,
               {(job.found.folder / checkpoint::state_name).string(),
                "does not name the model that the run began with",
                "configuration and tokenizer are copied from it", "Name its folder with --model."});
  if (arguments.merges && !job.is_adapter())
    core::fail(core::ErrorKind::command_line,
               {"finetune export --merge", job.found.folder.string() + " has no adapter",
                "its run trained all weights", "Leave --merge out."});
  if (arguments.is_ema) require_ema(job);
  if (job.is_adapter() && !arguments.merges) {
    export_adapter(job);
    return core::exit_done;
  }
  require_model(job);
  if (arguments.merges) {
    export_merged(job);
  } else {
    export_whole(job);
  }
  return core::exit_done;
}

}  // namespace finetune::app
