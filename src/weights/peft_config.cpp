// SPDX-License-Identifier: Apache-2.0
#include "weights/peft_config.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "model/adapter_targets.hpp"
#include "model/names.hpp"
#include "model/peft_options.hpp"

namespace finetune::weights {
namespace {

constexpr const char* causal_task = "CAUSAL_LM";
constexpr const char* classification_task = "SEQ_CLS";

const model::Adapter& kind_of(const model::PeftOptions& options,
                              std::span<const model::Adapter> kinds) {
  const core::Json type = options.config().value("peft_type", core::Json());
  std::vector<std::string> known;
  for (const model::Adapter& kind : kinds) {
    if (type == kind.peft_type) return kind;
    const std::string quoted = fmt::format("\"{}\"", kind.peft_type);
    if (std::ranges::find(known, quoted) == known.end()) known.push_back(quoted);
  }
  options.fail(fmt::format("peft_type = {}", model::shown(type)),
               fmt::format("of PEFT's adapters {} {} read", fmt::join(known, " and "),
                           known.size() == 1 ? "is" : "are"),
               model::continue_elsewhere);
}

void require_task(const model::PeftOptions& options) {
  const core::Json task = options.config().value("task_type", core::Json());
  if (!task.is_null() && task != causal_task && task != classification_task)
    options.refuse("task_type",
                   "models are trained to continue text (\"CAUSAL_LM\") or to classify it "
                   "(\"SEQ_CLS\")");
}

void read_targets(const model::PeftOptions& options, PeftConfig& result) {
  const core::Json& config = options.config();
  const auto found = config.find("target_modules");
  const bool leaves_out = options.has("exclude_modules") || options.has("layers_to_transform") ||
                          options.has("layers_pattern");
  result.targets_are_in_tensors =
      leaves_out || found == config.end() || found->is_null() || found->is_string();
  result.settings.target_modules.clear();
  if (!result.targets_are_in_tensors)
    result.settings.target_modules = options.texts("target_modules");
}

constexpr const char* token_rows_key = "trainable_token_indices";

/// A list of ids, of the embedding; or {module: ids}.
void read_token_rows(const model::PeftOptions& options, PeftConfig& result) {
  constexpr const char* usual_module = "embed_tokens";
  if (!options.has(token_rows_key)) return;
  const core::Json& given = options.config()[token_rows_key];
  core::Json by_module = given;
  if (given.is_array()) by_module = core::Json::object({{usual_module, given}});
  const auto is_id = [](const core::Json& id) { return id.is_number_integer() && id >= 0; };
  for (const auto& [module, ids] : by_module.items()) {
    if (!ids.is_array() || ids.empty() || !std::ranges::all_of(ids, is_id))
      options.refuse(token_rows_key, "it is a list of ids, or one for each of some modules");
    result.token_rows[module] = ids.get<std::vector<std::int64_t>>();
    auto& saved = result.settings.modules_to_save;
    if (std::ranges::find(saved, module) == saved.end()) saved.push_back(module);
  }
}

/// The rows of `table` of which some indices are trained, in PEFT's key for them.
void write_token_rows(const model::ParameterTable& table, core::Json& config) {
  for (const model::Parameter& row : table.rows) {
    if (!row.trained_rows || row.adapts >= 0) continue;
    const std::string module = model::last_part(model::module_of(row.name));
    for (std::int64_t i = 0; i < row.trained_rows->num; ++i)
      config[token_rows_key][module].push_back(row.trained_rows->first + i);
    config.erase("ensure_weight_tying");  // of tied matrices PEFT trains the same rows
    core::Json& saved = config["modules_to_save"];
    if (!saved.is_array()) continue;
    saved.erase(std::remove(saved.begin(), saved.end(), module), saved.end());
    if (saved.empty()) saved = nullptr;
  }
}

/// PEFT may name both where it keeps the tie: the embedding is meant, and the head with it.
void leave_out_tied_head(std::vector<std::string>& names) {
  if (names.size() > 1)
    std::erase_if(names, [](const std::string& name) { return model::is_named(name, tied_head); });
}

}  // namespace

PeftConfig read_peft_config(const core::Json& config, const std::string& where,
                            std::span<const model::Adapter> kinds,
                            const nlohmann::ordered_json* in_order) {
  const model::PeftOptions options(config, where, in_order);
  PeftConfig result;
  result.kind = &kind_of(options, kinds);
  require_task(options);
  result.settings.name.clear();
  result.settings.modules_to_save = options.texts("modules_to_save");
  result.kind->read_peft(options, result.settings);
  read_token_rows(options, result);
  result.keeps_ties = options.boolean("ensure_weight_tying");
  read_targets(options, result);
  if (result.keeps_ties) {
    leave_out_tied_head(result.settings.target_modules);
    leave_out_tied_head(result.settings.modules_to_save);
  }
  return result;
}

core::Json to_peft_config(const model::AdapterSettings& settings, const model::Adapter& kind,
                          const std::vector<std::string>& modules,
                          const std::vector<std::string>& adapted) {
  std::set<std::string> targets;
  const std::set<std::string> chosen(adapted.begin(), adapted.end());
  for (const std::string& module : adapted) {
    const std::string end = module.substr(module.rfind('.') + 1);
    const bool means_others = std::ranges::any_of(modules, [&](const std::string& other) {
      return model::is_named(other, end) && !chosen.contains(other);
    });
    targets.insert(means_others ? module : end);
  }
  core::Json saved;
  if (!settings.modules_to_save.empty()) saved = settings.modules_to_save;
  core::Json config = {{"peft_type", kind.peft_type}, {"task_type", causal_task},
                       {"inference_mode", true},      {"base_model_name_or_path", nullptr},
                       {"revision", nullptr},         {"target_modules", targets},
                       {"modules_to_save", saved}};
  kind.write_peft(settings, adapted, config);
  return config;
}

core::Json to_peft_config(const model::AdapterSettings& settings, const model::Adapter& kind,
                          const model::ParameterTable& table) {
  std::vector<std::string> modules, adapted;
  for (const model::Parameter& row : table.rows) {
    if (row.adapts >= 0) continue;
    modules.push_back(model::module_of(row.name));
    const bool is_matrix = row.shape.size() == 2;  // biases may have parts of their module's
    const bool is_module = row.adapted.exists() && row.adapted.together.num == 0;
    if (is_matrix && is_module) adapted.push_back(modules.back());
  }
  core::Json config = to_peft_config(settings, kind, modules, adapted);
  if (table.outputs.are_of_texts()) config["task_type"] = classification_task;
  if (changes_tied_embedding(table)) config["ensure_weight_tying"] = true;
  write_token_rows(table, config);
  return config;
}

bool changes_tied_embedding(const model::ParameterTable& table) {
  const auto is = [](model::Role role) {
    return [role](const model::Parameter& row) { return row.role == role; };
  };
  const auto embedding = std::ranges::find_if(table.rows, is(model::Role::embedding));
  return embedding != table.rows.end() && (embedding->trainable || embedding->adapted.exists()) &&
         std::ranges::none_of(table.rows, is(model::Role::head));
}

}  // namespace finetune::weights
