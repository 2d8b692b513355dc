// SPDX-License-Identifier: Apache-2.0
#include "adapters/ia3/ia3.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "adapters/ia3/cost.hpp"
#include "adapters/ia3/parts.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "model/adapter_targets.hpp"
#include "model/names.hpp"

namespace finetune::adapters::ia3 {
namespace {

using model::module_of;
using model::Parameter;
using model::ParameterTable;

std::vector<std::string> usual_targets() {
  return {"k_proj", "v_proj", "down_proj"};
}

struct Settings {
  std::vector<std::string> feedforward_modules = {"down_proj"};
};

bool is_feedforward(const Settings& settings, const std::string& module) {
  return std::ranges::any_of(settings.feedforward_modules, [&](const std::string& name) {
    return model::is_named(module, name);
  });
}

void bind(model::AdapterSettings& adapter, deck::Table& table) {
  // A set: what is compared has one order.
  std::ranges::sort(adapter.of<Settings>().feedforward_modules);
  table.texts({.name = "feedforward_modules",
               .restart = deck::Restart::fixed,
               .sentence = "ia3: those of target_modules whose inputs are scaled; of the others it "
                           "is the outputs."},
              adapter.of<Settings>().feedforward_modules);
}

/// A name of the deck that means none of the adapted matrices is a mistake; PEFT's files may hold
/// such.
void require_used(const model::AdapterSettings& adapter, const std::string& where,
                  const std::vector<std::string>& modules) {
  const auto settings = adapter.of<Settings>();
  const bool is_given = settings.feedforward_modules != Settings().feedforward_modules;
  if (where.empty() || !adapter.path.empty() || !is_given) return;
  for (const std::string& name : settings.feedforward_modules) {
    const bool is_used = std::ranges::any_of(
        modules, [&](const std::string& module) { return model::is_named(module, name); });
    if (is_used) continue;
    std::set<std::string> ends;
    for (const std::string& module : modules)
      ends.insert(model::last_part(module));
    model::fail_unknown_module(where, "feedforward_modules", name,
                               "no adapted matrix has this name", {ends.begin(), ends.end()});
  }
}

/// Adds the factors of matrix `i`, and lets its bias know of them if they are of its outputs.
void add_factors(ParameterTable& table, int i, bool are_of_inputs) {
  const auto at = [&](int row) -> Parameter& { return table.rows[static_cast<std::size_t>(row)]; };
  const std::string module = module_of(at(i).name);
  const model::PartShape part = {.shape = are_of_inputs
                                              ? std::vector<std::int64_t>{1, at(i).shape[1]}
                                              : std::vector<std::int64_t>{at(i).shape[0], 1},
                                 .shared_dim = are_of_inputs ? std::size_t{1} : 0,
                                 .init = model::Init::ones,
                                 .decayed = false};  // 1 is where it changes nothing, not 0
  const int row = model::add_part(table, i, ".ia3_l", part);
  at(i).adapted.parts = are_of_inputs ? std::vector<int>{-1, row} : std::vector<int>{row};
  for (Parameter& other : table.rows)
    if (!are_of_inputs && other.adapts < 0 && other.shape.size() == 1 &&
        other.name == module + ".bias")
      other.adapted.parts = {row};
}

/// The usual targets of which the model has any: a mixture of experts may have no other down_proj.
model::AdapterSettings without_missing(model::AdapterSettings adapter, const std::string& where,
                                       const ParameterTable& table) {
  const std::vector<std::string> usual = usual_targets();
  if (adapter.target_modules != usual) return adapter;
  std::vector<std::string> there;
  for (const std::string& name : usual) {
    const bool fits = std::ranges::any_of(table.rows, [&](const Parameter& row) {
      return model::can_be_adapted(row) && model::is_named(module_of(row.name), name);
    });
    if (fits) there.push_back(name);
  }
  if (there.empty() || there == usual) return adapter;
  adapter.target_modules = there;
  if (!where.empty())
    log::warn(core::to_string(
        {where, fmt::format("adapter.target_modules is {} here", fmt::join(there, ", ")),
         "the model has no other of the usual ones outside of experts",
         "Name them to say it yourself."}));
  return adapter;
}

void rewrite(const model::AdapterSettings& given, const std::string& where, ParameterTable& table) {
  const model::AdapterSettings adapter = without_missing(given, where, table);
  const std::vector<bool> chosen = model::freeze_all_but_targets(adapter, where, table);
  const auto settings = adapter.of<Settings>();
  require_used(adapter, where, model::modules_of(table, chosen));
  table.units.emplace_back(model::adapter_unit);
  for (std::size_t i = 0; i < chosen.size(); ++i)
    if (chosen[i])
      add_factors(table, static_cast<int>(i),
                  is_feedforward(settings, module_of(table.rows[i].name)));
}

void read_peft(const model::PeftOptions& options, model::AdapterSettings& adapter) {
  constexpr const char* key = "feedforward_modules";
  options.refuse_others({key, "init_ia3_weights"});
  Settings& settings = adapter.of<Settings>();
  settings = {};
  // Where PEFT's file does not say it, it is what families usually have: our default.
  const auto found = options.config().find(key);
  if (found == options.config().end() || found->is_null()) return;
  if (found->is_string()) options.refuse(key, "it is read as a list of names, not as a pattern");
  settings.feedforward_modules = options.texts(key);
}

/// PEFT wants feedforward_modules to be among target_modules, name by name: ends of names where
/// those decide, else the modules' whole names.
void write_peft(const model::AdapterSettings& adapter, const std::vector<std::string>& adapted,
                core::Json& config) {
  const auto settings = adapter.of<Settings>();
  std::set<std::string> feedforward;
  const core::Json targets = config.at("target_modules");
  for (const core::Json& target : targets) {
    const auto name = target.get<std::string>();
    const auto means = [&](const std::string& module) { return model::is_named(module, name); };
    const auto all = std::ranges::count_if(adapted, means);
    const auto scaled = std::ranges::count_if(adapted, [&](const std::string& module) {
      return means(module) && is_feedforward(settings, module);
    });
    if (scaled > 0) feedforward.insert(name);
    if (scaled == 0 || scaled == all) continue;
    config["target_modules"] = adapted;
    return write_peft(adapter, adapted, config);
  }
  config.update({{"feedforward_modules", feedforward},
                 {"fan_in_fan_out", false},
                 {"init_ia3_weights", true}});
}

}  // namespace

model::Adapter adapter(const model::AdapterMath* math) {
  return {.name = "ia3",
          .sentence = "learned factors of activations, with frozen weights",
          .peft_type = "IA3",
          .usual_targets = usual_targets(),
          .bind = bind,
          .rewrite = rewrite,
          .read_peft = read_peft,
          .write_peft = write_peft,
          .marks = {".ia3_l"},
          .endings = {{".ia3_l.default", ".ia3_l"}},
          .usual_lr = 10,
          .cost = &cost(),
          .math = math};
}

}  // namespace finetune::adapters::ia3
