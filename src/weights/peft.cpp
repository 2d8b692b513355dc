// SPDX-License-Identifier: Apache-2.0
#include "weights/peft.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/agree.hpp"
#include "core/error.hpp"
#include "model/names.hpp"
#include "weights/detail/names.hpp"
#include "weights/expected.hpp"
#include "weights/folder.hpp"

namespace finetune::weights {
namespace {

namespace fs = std::filesystem;

/// The same under one of the row's names.
std::string peft_name(const model::Parameter& row, const std::string& tensor) {
  return row.adapts >= 0 ? tensor : model::peft_prefix + tensor;
}

[[noreturn]] void refuse_adapter(const fs::path& where, const std::string& problem,
                                 const std::string& why, const std::string& remedy) {
  core::fail(core::ErrorKind::input, {where.string(), problem, why, remedy});
}

std::string read_config_text(const fs::path& folder) {
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored)) {
    refuse_adapter(
        folder, fs::exists(folder, ignored) ? "is not a folder" : "no such folder",
        fmt::format("a PEFT adapter is a folder with {} and {}", peft_config_name, peft_file_name),
        "Check the adapter's path.");
  }
  if (!is_in_folder(folder, peft_config_name)) {
    refuse_adapter(folder, fmt::format("has no {}", peft_config_name),
                   is_in_folder(folder, "config.json")
                       ? "it is a whole model, not an adapter"
                       : "PEFT writes one into every adapter's folder",
                   "Check the adapter's path.");
  }
  if (!is_in_folder(folder, peft_file_name)) {
    const bool has_pickle = is_in_folder(folder, "adapter_model.bin");
    refuse_adapter(
        folder,
        fmt::format("has {}no {}", has_pickle ? "adapter_model.bin but " : "", peft_file_name),
        has_pickle ? "loading pickle files can run code that is hidden in them"
                   : "the adapter's tensors are in it",
        has_pickle ? "Save the adapter with PEFT's save_pretrained first."
                   : "Copy or download the adapter again.");
  }
  return read_text_in_folder(folder, peft_config_name, largest_peft_config_bytes);
}

/// The name as PEFT's save_pretrained spells it.
std::string usual_name(std::string name, const model::Adapter& kind) {
  auto endings = kind.endings;
  endings.emplace_back(".modules_to_save.default.weight", ".weight");
  for (const auto& [other, usual] : endings) {
    if (!name.ends_with(other)) continue;
    name.replace(name.size() - other.size(), other.size(), usual);
    break;
  }
  return name;
}

std::map<std::string, std::string> usual_names(const ModelFiles& files, const fs::path& folder,
                                               const model::Adapter& kind) {
  std::map<std::string, std::string> names;
  for (const std::string& name : files.names()) {
    const auto [place, is_new] = names.emplace(usual_name(name, kind), name);
    if (is_new) continue;
    refuse_adapter(folder / peft_file_name,
                   fmt::format("has {} and {}", in_quotes(place->second), in_quotes(name)),
                   "they are two spellings of the same tensor",
                   "Save the adapter again with PEFT.");
  }
  return names;
}

/// DeepSpeed's ZeRO-3 leaves such tensors where nobody gathered the weights before saving.
void require_elements(const ModelFiles& files, const fs::path& folder) {
  for (const std::string& name : files.names()) {
    const auto& shape = files.entry(name).shape;
    if (core::num_elements(shape) > 0) continue;
    refuse_adapter(
        folder / peft_file_name,
        fmt::format("tensor {} has shape {}", in_quotes(name), shape_text(shape)),
        "it has no elements, as ZeRO-3 leaves it when an adapter is saved without gathering it",
        "Save the adapter again, with stage3_gather_16bit_weights_on_model_save = true.");
  }
}

/// Whole names of the modules that are adapted.
std::vector<std::string> adapted_modules(const std::map<std::string, std::string>& names,
                                         const PeftConfig& config) {
  const std::string_view prefix = model::peft_prefix;
  std::vector<std::string> modules;
  for (const auto& [usual, name] : names) {
    for (const std::string& mark : config.kind->marks) {
      if (!usual.starts_with(prefix) || !usual.ends_with(mark)) continue;
      std::string module = usual.substr(prefix.size(), usual.size() - prefix.size() - mark.size());
      // A tied head has the embedding's; what experts have together target_parameters names.
      const bool is_of_experts =
          module.ends_with(".experts") || module.ends_with(".experts.base_layer");
      const bool is_other = (config.keeps_ties && module == tied_head) || is_of_experts;
      if (!is_other) modules.push_back(std::move(module));
    }
  }
  return modules;
}

/// What PEFT writes as well, and that says nothing more: matrices beside their parts, and what is
/// tied under both names, if it is told to keep the tie.
std::vector<ExpectedTensor> repeated(const model::ParameterTable& table) {
  const std::string prefix = model::peft_prefix, head = prefix + tied_head;
  std::vector<ExpectedTensor> all;
  const auto add = [&](const std::string& name, std::vector<std::int64_t> shape) {
    all.push_back({.name = name, .shape = std::move(shape), .optional = true});
  };
  for (const model::Parameter& row : table.rows)
    if (row.adapted.exists() &&
        (row.role == model::Role::embedding || row.role == model::Role::head))
      add(prefix + model::module_of(model::name_in_transformers(row.name)) + ".base_layer.weight",
          row.shape);
  if (!changes_tied_embedding(table)) return all;
  const auto embedding =
      std::ranges::find(table.rows, model::Role::embedding, &model::Parameter::role);
  if (!embedding->adapted.exists()) {
    add(head + ".weight", embedding->shape);
    return all;
  }
  const std::int64_t rank = table.row(embedding->adapted.parts.front()).shape.front();
  add(head + ".base_layer.weight", embedding->shape);
  add(head + ".lora_A.weight", {rank, embedding->shape[1]});
  add(head + ".lora_B.weight", {embedding->shape[0], rank});
  return all;
}

}  // namespace

std::string peft_name(const model::Parameter& row) {
  return peft_name(row, model::name_in_transformers(row.name));
}

std::string token_rows_name(const std::string& tensor) {
  return model::peft_prefix + model::module_of(tensor) + ".token_adapter.trainable_tokens_delta";
}

PeftAdapter::PeftAdapter(fs::path folder, PeftConfig config, ModelFiles files)
    : folder_(std::move(folder)), config_(std::move(config)), files_(std::move(files)) {
  require_elements(files_, folder_);
  names_ = usual_names(files_, folder_, *config_.kind);
  if (config_.targets_are_in_tensors)
    config_.settings.target_modules = adapted_modules(names_, config_);
}

PeftAdapter PeftAdapter::open(const comm::Communicator& world, const fs::path& folder,
                              std::span<const model::Adapter> kinds) {
  const std::string text = world.broadcast_text(comm::agree(
      world, [&] { return world.is_root() ? read_config_text(folder) : std::string(); }));
  PeftConfig config = comm::agree(world, [&] {
    const std::string where = (folder / peft_config_name).string();
    const core::Json config = core::parse_json(text, where);
    const auto in_order = nlohmann::ordered_json::parse(text);
    return read_peft_config(config, where, kinds, &in_order);
  });
  ModelFiles files = ModelFiles::open(world, folder, peft_file_name);
  return comm::agree(world,
                     [&] { return PeftAdapter(folder, std::move(config), std::move(files)); });
}

const std::vector<std::int64_t>& PeftAdapter::token_rows(const model::Parameter& row) const {
  static const std::vector<std::int64_t> none;
  if (row.adapts >= 0) return none;
  for (const std::string& module : model::module_names(row.name)) {
    const auto found = config_.token_rows.find(model::last_part(module));
    if (found != config_.token_rows.end()) return found->second;
  }
  return none;
}

std::string PeftAdapter::name_in_file(const model::Parameter& row) const {
  const bool are_rows = !token_rows(row).empty();
  const std::string tensor = model::name_in_transformers(row.name);
  const std::string usual = are_rows ? token_rows_name(tensor) : peft_name(row, tensor);
  // Folders of earlier versions of this program have the names of the model's files.
  for (const std::string& name :
       {usual, are_rows ? token_rows_name(row.name) : peft_name(row, row.name)})
    if (const auto found = names_.find(name); found != names_.end()) return found->second;
  return usual;
}

std::vector<std::int64_t> PeftAdapter::shape_in_file(const model::Parameter& row) const {
  std::vector<std::int64_t> shape = row.shape;
  if (!token_rows(row).empty()) shape.front() = std::ssize(token_rows(row));
  return shape;
}

void PeftAdapter::require_ties(const model::ParameterTable& table) const {
  if (config_.keeps_ties || !config_.token_rows.empty() || !changes_tied_embedding(table)) return;
  refuse_adapter(folder_ / peft_config_name,
                 "names the embedding, and ensure_weight_tying is not true",
                 "the model's head is its embedding: trained apart, they would be two",
                 "Train a new adapter here, or one with ensure_weight_tying in PEFT.");
}

void PeftAdapter::require_tokens(const model::ParameterTable& table) const {
  for (const model::Parameter& row : table.rows) {
    for (const std::int64_t id : token_rows(row))
      if (id >= row.shape.front())
        refuse_adapter(
            folder_ / peft_config_name, fmt::format("has a row of {} for token {}", row.name, id),
            fmt::format("the model has {} rows: it has no such token", row.shape.front()),
            "Name the model with the new tokens: grown_model beside the checkpoints of "
            "the run, or one that transformers resized.");
  }
}

void PeftAdapter::require_fits(const model::ParameterTable& table) const {
  require_ties(table);
  require_tokens(table);
  std::vector<ExpectedTensor> expected;
  for (const model::Parameter& row : table.rows)
    if (row.trainable)
      expected.push_back(
          {.name = name_in_file(row), .shape = shape_in_file(row), .optional = false});
  for (ExpectedTensor& tensor : repeated(table))
    expected.push_back(std::move(tensor));
  check(files_, expected,
        {.why = fmt::format("it is an adapter of another model, or {} is not its own",
                            peft_config_name),
         .remedy = "Name the model that the adapter was made for."});
}

void PeftAdapter::read(const model::Parameter& row, std::int64_t first,
                       std::span<float> values) const {
  const std::vector<std::int64_t>& ids = token_rows(row);
  if (ids.empty()) return read_all(row, first, values);
  const std::int64_t columns = row.count() / row.shape.front();
  for (std::int64_t i = 0; i < std::ssize(ids); ++i) {
    const std::int64_t start = ids[static_cast<std::size_t>(i)] * columns;
    const std::int64_t from = std::max(first, start);
    const std::int64_t end = std::min(first + std::ssize(values), start + columns);
    if (from < end)
      read_all(row, i * columns + from - start,
               values.subspan(static_cast<std::size_t>(from - first),
                              static_cast<std::size_t>(end - from)));
  }
}

/// Of the tensor in the file.
void PeftAdapter::read_all(const model::Parameter& row, std::int64_t first,
                           std::span<float> values) const {
  const std::string name = name_in_file(row);
  files_.read({.name = name,
               .shape = shape_in_file(row),
               .dtype = core::DType::f32,
               .offset = first,
               .count = std::ssize(values)},
              std::as_writable_bytes(values));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) continue;
    refuse_adapter(folder_ / peft_file_name,
                   fmt::format("tensor {} holds {} at {}", in_quotes(name), values[i],
                               first + static_cast<std::int64_t>(i)),
                   "with it every output of the model would be lost",
                   "Use an earlier checkpoint of the run that wrote it.");
  }
}

}  // namespace finetune::weights
