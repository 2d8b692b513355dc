// SPDX-License-Identifier: Apache-2.0
#include "peft_names.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <vector>

#include "core/error.hpp"
#include "model/adapter.hpp"
#include "model/adapter_targets.hpp"
#include "model/module_pattern.hpp"
#include "model/names.hpp"
#include "weights/peft_config.hpp"

namespace finetune::app {
namespace {

using model::Parameter;

/// By the name of its embedding alone PEFT sees that a model's head is one.
constexpr const char* usual_embedding = "embed_tokens";

std::string module_in_transformers(const Parameter& row) {
  return model::module_of(model::name_in_transformers(row.name));
}

/// What an entry that names modules is to be under the names of transformers: itself where it means
/// the same modules there.
template <typename Means>
std::set<std::string> renamed(const std::string& entry, const model::ParameterTable& table,
                              const Means& means) {
  std::set<std::string> names;
  for (const Parameter& row : table.rows) {
    if (row.adapts >= 0 || !means(model::module_of(row.name), entry)) continue;
    const std::string module = module_in_transformers(row);
    const bool is_whole = entry.find('.') != std::string::npos;
    names.insert(means(module, entry) ? entry : is_whole ? module : model::last_part(module));
  }
  if (names.empty()) names.insert(entry);
  return names;
}

template <typename Means>
void rename_list(core::Json& config, const char* key, const model::ParameterTable& table,
                 const Means& means) {
  const auto found = config.find(key);
  if (found == config.end() || !found->is_array()) return;
  std::set<std::string> names;
  for (const core::Json& entry : *found)
    names.merge(renamed(entry.get<std::string>(), table, means));
  *found = names;
}

/// Ranks or alphas by patterns: those that mean other modules there by whole names instead. Experts
/// have transformers' names already.
void rename_patterns(core::Json& config, const char* key, const model::ParameterTable& table) {
  const auto found = config.find(key);
  if (found == config.end() || !found->is_object() || found->empty()) return;
  const core::Json patterns = *found;
  const auto pattern_of = [&](const std::string& module) -> std::string {
    for (const auto& [pattern, value] : patterns.items())
      if (model::ModulePattern(pattern, key, patterns.size()).matches(module)) return pattern;
    return "";
  };
  core::Json whole = patterns;
  bool is_same = true;
  for (const Parameter& row : table.rows) {
    if (row.adapts >= 0 || !row.adapted.exists() || row.adapted.together.num > 0) continue;
    const std::string module = module_in_transformers(row);
    const std::string there = pattern_of(module);
    std::string pattern = pattern_of(model::module_of(row.name));
    if (pattern.empty()) pattern = there;
    if (pattern.empty()) continue;
    is_same = is_same && pattern == there;
    std::string escaped;
    for (const char c : module)
      escaped += c == '.' ? "\\." : std::string(1, c);
    whole.erase(pattern);
    whole[escaped] = patterns[pattern];
  }
  if (!is_same) *found = whole;
}

void name_tied_head(core::Json& config, const model::ParameterTable& table) {
  if (!config.value("ensure_weight_tying", false)) return;
  const Parameter& embedding = table.row(table.decoder.embedding);
  const bool is_known = model::last_part(module_in_transformers(embedding)) == usual_embedding &&
                        config.value("peft_type", "") == model::peft_lora;
  if (!is_known)
    config[embedding.adapted.exists() ? "target_modules" : "modules_to_save"].push_back(
        weights::tied_head);
}

}  // namespace

core::Json with_names_of_transformers(core::Json config, const model::ParameterTable& table) {
  const auto is_end = [](const std::string& module, const std::string& end) {
    return module.ends_with(end);
  };
  for (const char* key : {"target_modules", "feedforward_modules"})
    rename_list(config, key, table, model::is_named);
  rename_list(config, "modules_to_save", table, is_end);
  for (const char* key : {"rank_pattern", "alpha_pattern"})
    rename_patterns(config, key, table);
  constexpr const char* rows_key = "trainable_token_indices";
  if (const auto rows = config.find(rows_key); rows != config.end() && rows->is_object()) {
    core::Json by_name = core::Json::object();
    for (const auto& [module, ids] : rows->items())
      for (const std::string& name : renamed(module, table, model::is_named))
        by_name[name] = ids;
    *rows = by_name;
  }
  name_tied_head(config, table);
  return config;
}

void require_loaded_by_peft(const core::Json& config, const model::ParameterTable& table,
                            const std::string& where) {
  if (config.value("peft_type", "") != model::peft_lora) return;
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    const Parameter& row = table.rows[i];
    if (!row.adapted.exists() || !model::is_out_of_state_space(table, static_cast<int>(i)))
      continue;
    core::fail(core::ErrorKind::input,
               {where, fmt::format("has a low-rank part of {}", model::module_of(row.name)),
                "PEFT does not load low-rank parts of what comes out of a state space",
                "Export the model with it in its weights, by --merge."});
  }
}

}  // namespace finetune::app
