// SPDX-License-Identifier: Apache-2.0
#include "model/adapter.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace finetune::model {
namespace {

/// Each function once: adapters that share one share its keys.
std::vector<const Adapter*> owners_of_keys(const std::vector<Adapter>& kinds) {
  std::vector<const Adapter*> owners;
  for (const Adapter& kind : kinds)
    if (std::ranges::none_of(owners,
                             [&](const Adapter* owner) { return owner->bind == kind.bind; }))
      owners.push_back(&kind);
  return owners;
}

std::string sentence_of(const std::vector<Adapter>& kinds) {
  std::string text = "none: all weights are trained";
  for (const Adapter& kind : kinds)
    text += fmt::format("; {}: {}", kind.name, kind.sentence);
  return text + ".";
}

void bind_kind(AdapterSettings& settings, deck::Table& table, const std::vector<Adapter>& kinds) {
  using deck::Restart;
  std::vector<std::string> choices = {"none"};
  for (const Adapter& kind : kinds)
    choices.push_back(kind.name);
  const std::string about_kinds = sentence_of(kinds);
  table.choice({.name = "name", .restart = Restart::fixed, .sentence = about_kinds}, settings.name,
               choices);
  table.text({.name = "path",
              .restart = Restart::fixed,
              .sentence = "Folder of a PEFT adapter to continue from; its options are used. Empty: "
                          "a new one."},
             settings.path);
  settings.kind = find_adapter(kinds, settings.name);
  if (settings.kind != nullptr) settings.target_modules = settings.kind->usual_targets;
}

std::string sentence_of_targets(const std::vector<Adapter>& kinds) {
  std::string text =
      "Matrices that are adapted: ends of their modules' names, such as q_proj, or regular "
      "expressions for the whole of them, or all-linear for all matrices of the blocks but those "
      "behind a state space, which PEFT refuses.";
  for (const Adapter& kind : kinds)
    if (kind.usual_targets != AdapterSettings().target_modules)
      text += fmt::format(" {} by default: {}.", kind.name, fmt::join(kind.usual_targets, ", "));
  return text;
}

std::string sentence_of_packing(const std::vector<Adapter>& kinds) {
  std::vector<std::string> names;
  for (const Adapter& kind : kinds)
    if (kind.packs_weights) names.push_back(kind.name);
  return fmt::format(
      "{}: quantise the maxima of NF4's blocks as well: 4.13 instead of 4.5 bits per weight.",
      fmt::join(names, ", "));
}

void bind_layers(AdapterSettings& settings, deck::Table& table) {
  table.reals({.name = "layers_to_transform",
               .restart = deck::Restart::fixed,
               .sentence = "Layers of which matrices are adapted, counted from 0. []: of all."},
              settings.layers_to_transform, {.min = 0.0});
  for (const double layer : settings.layers_to_transform) {
    if (layer == std::floor(layer)) continue;
    table.problem("layers_to_transform", "is not a list of layers", "layers are whole numbers",
                  "Write for example layers_to_transform = [0, 1].");
    break;
  }
}

void bind_common(AdapterSettings& settings, deck::Table& table, const std::vector<Adapter>& kinds) {
  using deck::Restart;
  const std::string about_targets = sentence_of_targets(kinds);
  const std::string about_packing = sentence_of_packing(kinds);
  table.texts({.name = "target_modules", .restart = Restart::fixed, .sentence = about_targets},
              settings.target_modules);
  table.texts({.name = "exclude_modules",
               .restart = Restart::fixed,
               .sentence = "Those of them that are not, written in the same way."},
              settings.exclude_modules);
  bind_layers(settings, table);
  table.texts({.name = "modules_to_save",
               .restart = Restart::fixed,
               .sentence = "Modules that are trained in full in addition to the adapter: ends of "
                           "their names, such as embed_tokens or lm_head."},
              settings.modules_to_save);
  table.boolean({.name = "double_quant", .restart = Restart::fixed, .sentence = about_packing},
                settings.double_quant);
}

std::string key_of(const std::string& name) {
  return name.substr(name.find('.') + 1);
}

void reject_key(deck::Table& table, const std::string& key, const std::string& adapter) {
  table.problem(
      key,
      fmt::format("adapter.{} is given, but adapter.name = \"{}\" does not read it", key, adapter),
      "nothing would follow from it", "Remove it.");
}

/// Keys of other adapters would mean nothing where they have another value than their default.
void require_read(const AdapterSettings& settings, deck::Table& table,
                  const std::vector<Adapter>& kinds) {
  const Adapter* chosen = settings.kind;
  if (chosen == nullptr) return;  // said by whoever knows which keys "none" leaves without meaning
  for (const Adapter* owner : owners_of_keys(kinds)) {
    if (owner->bind == chosen->bind) continue;
    const auto values = own_values(*owner, settings), usual = own_values(*owner, {});
    for (std::size_t i = 0; i < values.size(); ++i)
      if (values[i].second != usual[i].second)
        reject_key(table, key_of(values[i].first), settings.name);
  }
  if (!chosen->packs_weights && settings.double_quant != AdapterSettings().double_quant)
    reject_key(table, "double_quant", settings.name);
}

}  // namespace

void AdapterSettings::bind(deck::Table& table, const std::vector<Adapter>& kinds) {
  bind_kind(*this, table, kinds);
  for (const Adapter* owner : owners_of_keys(kinds))
    owner->bind(*this, table);
  bind_common(*this, table, kinds);
  require_read(*this, table, kinds);
}

const Adapter* find_adapter(const std::vector<Adapter>& kinds, const std::string& name) {
  const auto found = std::ranges::find(kinds, name, &Adapter::name);
  return found == kinds.end() ? nullptr : &*found;
}

double dropout_of(const AdapterSettings& settings) {
  const bool drops = settings.kind != nullptr && settings.kind->dropout != nullptr;
  return drops ? settings.kind->dropout(settings) : 0;
}

void put_on(const Adapter& adapter, const AdapterSettings& settings, const std::string& where,
            ParameterTable& table) {
  adapter.rewrite(settings, where, table);
  for (Parameter& row : table.rows) {
    if (!row.adapted.exists()) continue;
    row.adapted.cost = adapter.cost;
    row.adapted.math = adapter.math;
  }
}

std::vector<std::pair<std::string, std::string>> own_values(const Adapter& adapter,
                                                            const AdapterSettings& settings) {
  deck::Deck nothing = deck::Deck::for_reference();
  deck::Table table = nothing.table("adapter", "");
  AdapterSettings copy = settings;
  adapter.bind(copy, table);
  return nothing.fixed_values();
}

}  // namespace finetune::model
