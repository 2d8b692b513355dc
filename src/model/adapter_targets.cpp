// SPDX-License-Identifier: Apache-2.0
#include "model/adapter_targets.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "core/error.hpp"
#include "core/log.hpp"
#include "core/text.hpp"
#include "model/names.hpp"

namespace finetune::model {
namespace {

constexpr std::string_view all_linear = "all-linear";
/// What models call a head of their own.
constexpr const char* tied_head = "lm_head";

/// Last parts of the names of modules that `is_fit` says yes to, each once.
template <typename IsFit>
std::vector<std::string> ends_of(const ParameterTable& table, const IsFit& is_fit) {
  std::set<std::string> ends;
  for (const Parameter& row : table.rows) {
    if (!is_fit(row)) continue;
    ends.insert(last_part(module_of(row.name)));
  }
  return {ends.begin(), ends.end()};
}

void require_names(const std::vector<std::string>& names, const char* key,
                   const std::string& where) {
  if (std::ranges::find(names, "") == names.end()) return;
  core::fail(core::ErrorKind::deck, {where, fmt::format("adapter.{} names \"\"", key),
                                     "that is no module's name", "Leave it out."});
}

/// A head that is the embedding cannot be named as a module of its own.
void refuse_tied_head(const std::string& where, const char* key, const std::string& name,
                      const ParameterTable& table, bool is_adaptable) {
  const auto row_of = [&](Role role) {
    return std::ranges::find(table.rows, role, &Parameter::role);
  };
  const auto embedding = row_of(Role::embedding);
  if (!is_named(tied_head, name) || embedding == table.rows.end() ||
      row_of(Role::head) != table.rows.end())
    return;
  const std::string end = last_part(module_of(embedding->name));
  core::fail(core::ErrorKind::deck,
             {where, fmt::format("adapter.{} names \"{}\"", key, name),
              fmt::format("in this model the head is the embedding, {}: they are tied", end),
              fmt::format("Name {} in adapter.{} both.", end,
                          is_adaptable ? "target_modules to adapt" : "modules_to_save to train")});
}

/// Whether `is_it` says yes to a name of the row's module: decks have those of the files, PEFT's
/// folders those of transformers.
template <typename IsIt>
bool any_name(const Parameter& row, const IsIt& is_it) {
  return std::ranges::any_of(module_names(row.name), is_it);
}
bool matches(const ModuleName& named, const Parameter& row) {
  return any_name(row, [&](const std::string& module) { return named.matches(module); });
}

/// PEFT refuses these matrices: what transformers computes a state space with may read the weight
/// past the module. Source: _check_lora_target_modules_mamba in peft/tuners/tuners_utils.py.
void warn_of_state_spaces(const AdapterSettings& settings, const std::string& where,
                          const ParameterTable& table, const std::vector<bool>& chosen) {
  if (where.empty() || settings.kind == nullptr || settings.kind->peft_type != peft_lora) return;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    if (!chosen[i] || !is_out_of_state_space(table, static_cast<int>(i))) continue;
    log::warn(core::to_string(
        {where, fmt::format("adapter.target_modules names {}", module_of(table.rows[i].name)),
         "PEFT does not load low-rank parts of what comes out of a state space: the run can be "
         "exported with --merge alone",
         "Leave it out, or name all-linear, which leaves it out."}));
    return;
  }
}

/// A name may mean matrices that are adapted and experts, which are not.
void warn_of_experts(const AdapterSettings& settings, const std::string& where,
                     const ParameterTable& table) {
  if (where.empty()) return;
  for (const std::string& name : settings.target_modules) {
    const ModuleName named(name, where);
    std::int64_t num_left = 0;
    for (const Parameter& row : table.rows) {
      if (row.role == Role::expert && matches(named, row))
        num_left += row.shape.size() == 3 ? row.shape[0] : 1;
    }
    if (num_left == 0) continue;
    log::warn(core::to_string(
        {where, fmt::format("adapter.target_modules names \"{}\"", name),
         fmt::format("{} matrices of experts of that name stay as they are", num_left),
         "Only those outside of experts are adapted."}));
  }
}

/// Why a module that is there is not adapted.
std::string why_not(const ParameterTable& table, const std::string& name, const ModuleName& named) {
  for (const Parameter& row : table.rows) {
    if (!matches(named, row)) continue;
    if (row.role == Role::expert || row.role == Role::router)
      return "experts and their routers stay as they are";
    if (row.role == Role::embedding || row.role == Role::head)
      return "embedding and head are trained in full, by adapter.modules_to_save";
    return "it is no matrix";
  }
  return ModuleName::is_pattern(name) ? "no module's whole name matches this expression"
                                      : "the model has no such module";
}

/// Whether the row is adapted if it is named; `all_linear` names those of blocks.
bool fits(const Parameter& row, const std::string& name, const Adaptable& besides) {
  if (can_be_adapted(row)) return true;
  const bool is_of_vocabulary = row.role == Role::embedding || row.role == Role::head;
  return besides.vocabulary && is_of_vocabulary && name != all_linear && row.shape.size() == 2;
}

/// The matrices that adapter.target_modules names.
std::vector<bool> named_targets(const AdapterSettings& settings, const std::string& where,
                                const ParameterTable& table, const Adaptable& besides) {
  std::vector<bool> chosen(table.rows.size(), false);
  for (const std::string& name : settings.target_modules) {
    const ModuleName named(name, where, settings.target_modules.size());
    bool is_found = false;
    for (std::size_t i = 0; i < table.rows.size(); ++i) {
      const Parameter& row = table.rows[i];
      const bool is_meant = name == all_linear ? !is_out_of_state_space(table, static_cast<int>(i))
                                               : matches(named, row);
      if (!is_meant || !fits(row, name, besides)) continue;
      chosen[i] = is_found = true;
    }
    if (is_found) continue;
    refuse_tied_head(where, "target_modules", name, table, besides.vocabulary);
    auto known = ends_of(table, [&](const Parameter& row) { return fits(row, "", besides); });
    known.emplace_back(all_linear);
    fail_unknown_module(where, "target_modules", name, why_not(table, name, named), known);
  }
  if (settings.target_modules.empty() && !besides.others)
    core::fail(core::ErrorKind::deck,
               {where, "adapter.target_modules is empty", "then nothing would be adapted",
                "Name modules, or all-linear."});
  return chosen;
}

/// Takes out what adapter.exclude_modules names.
void exclude(const AdapterSettings& settings, const std::string& where, const ParameterTable& table,
             std::vector<bool>& chosen) {
  const std::vector<std::string> all = modules_of(table, chosen);
  for (const std::string& name : settings.exclude_modules) {
    const ModuleName named(name, where, settings.exclude_modules.size());
    const auto is_it = [&](const std::string& module) { return named.matches(module); };
    if (std::ranges::none_of(all, is_it)) {
      std::set<std::string> ends;
      for (const std::string& module : all)
        ends.insert(last_part(module));
      fail_unknown_module(where, "exclude_modules", name, "no module of target_modules is named so",
                          {ends.begin(), ends.end()});
    }
    for (std::size_t i = 0; i < chosen.size(); ++i)
      if (chosen[i] && any_name(table.rows[i], is_it)) chosen[i] = false;
  }
}

/// Keeps those of adapter.layers_to_transform. Block i is stage 1 + i.
void keep_layers(const AdapterSettings& settings, const std::string& where,
                 const ParameterTable& table, std::vector<bool>& chosen) {
  const auto& layers = settings.layers_to_transform;
  if (layers.empty()) return;
  std::int64_t num_layers = 0;
  for (const Parameter& row : table.rows)
    if (row.role == Role::linear || row.role == Role::expert)
      num_layers = std::max<std::int64_t>(num_layers, row.stage);
  for (const double layer : layers)
    if (layer >= static_cast<double>(num_layers))
      core::fail(core::ErrorKind::deck,
                 {where, fmt::format("adapter.layers_to_transform names layer {}", layer),
                  fmt::format("the model's last is {}, counted from 0", num_layers - 1),
                  fmt::format("Name layers up to {}.", num_layers - 1)});
  for (std::size_t i = 0; i < chosen.size(); ++i)
    chosen[i] = chosen[i] && std::ranges::find(layers, table.rows[i].stage - 1) != layers.end();
}

std::vector<bool> targets(const AdapterSettings& settings, const std::string& where,
                          const ParameterTable& table, const Adaptable& besides) {
  std::vector<bool> chosen = named_targets(settings, where, table, besides);
  exclude(settings, where, table, chosen);
  keep_layers(settings, where, table, chosen);
  if (std::ranges::find(chosen, true) == chosen.end() && !besides.others)
    core::fail(core::ErrorKind::deck,
               {where,
                "adapter.exclude_modules and adapter.layers_to_transform leave nothing of "
                "adapter.target_modules",
                "all weights would stay as they are", "Name fewer of them."});
  return chosen;
}

/// Thaws the modules that are trained whole.
void thaw(const AdapterSettings& settings, const std::string& where, ParameterTable& table) {
  const auto has_name = [](const Parameter& row) { return row.adapts < 0; };
  for (const std::string& name : settings.modules_to_save) {
    bool is_found = false;
    for (Parameter& row : table.rows) {
      const bool is_meant = any_name(
          row, [&](const std::string& module) { return module.ends_with(name); });  // as in PEFT
      if (row.is_constant || !is_meant) continue;
      if (!row.packing.is_dense())
        core::fail(core::ErrorKind::deck,
                   {where, fmt::format("adapter.modules_to_save names \"{}\"", name),
                    "it is kept in few bits, which cannot be trained", "Leave it out."});
      row.trainable = is_found = true;
    }
    if (is_found) continue;
    refuse_tied_head(where, "modules_to_save", name, table, false);
    fail_unknown_module(where, "modules_to_save", name, "the model has no such module",
                        ends_of(table, has_name));
  }
}

}  // namespace

void fail_unknown_module(const std::string& where, const char* key, const std::string& name,
                         const std::string& why, const std::vector<std::string>& known) {
  const auto near = core::nearest(name, known);
  core::fail(core::ErrorKind::deck,
             {where, fmt::format("adapter.{} names \"{}\"", key, name),
              fmt::format("{}; there are {}", why, fmt::join(known, ", ")),
              near ? fmt::format("Did you mean \"{}\"?", *near) : "Use some of these."});
}

std::vector<std::string> modules_of(const ParameterTable& table, const std::vector<bool>& chosen) {
  std::vector<std::string> modules;
  for (std::size_t i = 0; i < chosen.size(); ++i)
    if (chosen[i])
      for (std::string& module : module_names(table.rows[i].name))
        modules.push_back(std::move(module));
  return modules;
}

bool can_be_adapted(const Parameter& row) {
  return row.role == Role::linear && row.shape.size() == 2;
}

bool is_out_of_state_space(const ParameterTable& table, int row) {
  return std::ranges::any_of(table.decoder.blocks, [&](const BlockRows& block) {
    return block.state.exists() && block.attention_out == row;
  });
}

int add_part(ParameterTable& table, int row, const char* suffix, const PartShape& part) {
  const Parameter& base = table.row(row);
  Parameter added{.name = peft_prefix + module_of(base.name) + suffix,
                  .shape = part.shape,
                  .unit = static_cast<int>(table.units.size()) - 1,
                  .decayed = part.decayed,
                  .init = part.init,
                  .stage = base.stage};
  added.adapts = row;
  if (base.split && base.split->dim == part.shared_dim) {
    added.split = base.split;
    added.split->dim = part.own_dim.value_or(std::min(part.shared_dim, part.shape.size() - 1));
  }
  table.rows.push_back(std::move(added));
  return static_cast<int>(table.rows.size()) - 1;
}

std::vector<bool> freeze_all_but_targets(const AdapterSettings& settings, const std::string& where,
                                         ParameterTable& table, const Adaptable& besides) {
  require_names(settings.target_modules, "target_modules", where);
  require_names(settings.exclude_modules, "exclude_modules", where);
  require_names(settings.modules_to_save, "modules_to_save", where);
  const std::vector<bool> chosen = targets(settings, where, table, besides);
  warn_of_experts(settings, where, table);
  warn_of_state_spaces(settings, where, table, chosen);
  for (Parameter& row : table.rows)
    row.trainable = false;
  thaw(settings, where, table);
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    if (chosen[i] && table.rows[i].trainable)
      core::fail(core::ErrorKind::deck,
                 {where, fmt::format("{} is adapted and trained in full", table.rows[i].name),
                  "adapter.target_modules and adapter.modules_to_save both name it",
                  "Name it in one of them."});
  }
  return chosen;
}

}  // namespace finetune::model
