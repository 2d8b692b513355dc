// SPDX-License-Identifier: Apache-2.0
#include "base/peft_weights.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "deck/value.hpp"

namespace finetune::base {
namespace {

std::string sorted(std::vector<std::string> names) {
  std::ranges::sort(names);
  return deck::to_toml(names);
}

/// Keys of [adapter] that an adapter's folder settles, with their values as a deck has them.
std::vector<std::pair<std::string, std::string>> settled(const model::Adapter& kind,
                                                         const model::AdapterSettings& settings) {
  std::vector<std::pair<std::string, std::string>> values = model::own_values(kind, settings);
  values.emplace_back("adapter.target_modules", sorted(settings.target_modules));
  values.emplace_back("adapter.exclude_modules", sorted(settings.exclude_modules));
  values.emplace_back("adapter.layers_to_transform", deck::to_toml(settings.layers_to_transform));
  values.emplace_back("adapter.modules_to_save", sorted(settings.modules_to_save));
  return values;
}

}  // namespace

model::AdapterSettings take_settings(const model::AdapterSettings& deck,
                                     const weights::PeftAdapter& adapter,
                                     const std::string& where) {
  if (adapter.kind().peft_type != deck.kind->peft_type)
    core::fail(core::ErrorKind::deck,
               {where, fmt::format("adapter.name = \"{}\"", deck.name),
                fmt::format("the adapter in {} is of PEFT's kind {}", adapter.folder().string(),
                            adapter.kind().peft_type),
                fmt::format("Set adapter.name = \"{}\".", adapter.kind().name)});
  model::AdapterSettings settings = adapter.settings();
  settings.name = deck.name;
  settings.path = deck.path;
  settings.kind = deck.kind;
  settings.double_quant = deck.double_quant;
  const model::Adapter& kind = *deck.kind;
  if (kind.keep_of_deck != nullptr) kind.keep_of_deck(deck, settings);
  model::AdapterSettings usual;
  usual.target_modules = kind.usual_targets;
  const auto of_deck = settled(kind, deck), of_file = settled(kind, settings),
             of_default = settled(kind, usual);
  std::string differences;
  for (std::size_t i = 0; i < of_deck.size(); ++i) {
    const auto& [key, value] = of_deck[i];
    if (value != of_default[i].second && value != of_file[i].second)
      differences +=
          fmt::format("\n    {} = {}, the adapter has {}", key, value, of_file[i].second);
  }
  if (differences.empty()) return settings;
  core::fail(core::ErrorKind::deck,
             {where, fmt::format("differs from the adapter in {}", adapter.folder().string()),
              "adapter.path continues from it with its own options",
              "Remove these keys, or adapter.path to train a new adapter." + differences});
}

void update_fixed(const model::AdapterSettings& settings,
                  std::vector<std::pair<std::string, std::string>>& fixed) {
  for (const auto& [key, value] : settled(*settings.kind, settings)) {
    const auto found = std::ranges::find(fixed, key, &std::pair<std::string, std::string>::first);
    if (found != fixed.end()) found->second = value;
  }
}

WeightSource with_peft(WeightSource base, const weights::PeftAdapter& adapter,
                       const model::ParameterTable& table) {
  WeightSource both;
  both.plane = base.plane;
  both.values = [base = std::move(base.values), &adapter, &table](int row, std::int64_t first,
                                                                  std::span<float> target) {
    const bool is_whole = table.row(row).trainable && adapter.token_rows(table.row(row)).empty();
    if (!is_whole) base(row, first, target);
    if (!table.row(row).trainable) return;
    adapter.read(table.row(row), first, target);
  };
  return both;
}

}  // namespace finetune::base
