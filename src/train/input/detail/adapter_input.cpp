// SPDX-License-Identifier: Apache-2.0
#include "train/input/detail/adapter_input.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "base/peft_weights.hpp"
#include "comm/agree.hpp"
#include "core/error.hpp"
#include "deck/value.hpp"
#include "model/fp8.hpp"
#include "model/names.hpp"
#include "train/input/described_model.hpp"
#include "train/input/trained_tensors.hpp"

namespace finetune::train {
namespace {

/// The names of the keys that only some adapters read, with their values.
std::vector<std::pair<std::string, std::string>> own_keys(const model::Adapter& kind,
                                                          const model::AdapterSettings& settings) {
  auto keys = model::own_values(kind, settings);
  for (auto& [key, value] : keys)
    key = key.substr(std::string_view("adapter.").size());
  if (kind.packs_weights) keys.emplace_back("double_quant", deck::to_toml(settings.double_quant));
  return keys;
}

/// The first adapter that reads all of `keys`, of those that are advised if there is one.
std::string adapter_that_reads(const std::vector<std::string>& keys, const Registry& registry) {
  std::string name;
  for (const model::Adapter& kind : registry.adapters) {
    const auto own = own_keys(kind, {});
    const bool fits = std::ranges::all_of(keys, [&](const std::string& key) {
      return std::ranges::find(own, key, &std::pair<std::string, std::string>::first) != own.end();
    });
    if (fits && kind.is_remedy) return kind.name;
    if (fits && name.empty()) name = kind.name;
  }
  return name;
}

/// PEFT trains the head of such a model whole, beside the adapter.
void save_head(Input& input) {
  if (!input.architecture.outputs.are_of_texts() || !input.adapter.exists()) return;
  auto& saved = input.adapter.modules_to_save;
  if (std::ranges::find(saved, "score") == saved.end()) saved.emplace_back("score");
}

/// Whether a row of the table has one for each token.
bool is_of_vocabulary(const model::Parameter& row, const Input& input) {
  return model::is_looked_up(row.role) ||
         (row.role == model::Role::head && row.shape[0] == input.architecture.vocab_size);
}

/// Modules of which only the rows of new tokens are trained: those of the vocabulary that the
/// adapter does not train whole. They are saved as if it did.
std::vector<std::string> save_new_rows(Input& input) {
  std::vector<std::string> alone;
  if (!input.model.new_tokens.any() || !input.model.train_new_tokens) return alone;
  for (const model::Parameter& row : input.parameters.rows) {
    const std::string module = model::module_of(row.name);
    auto& saved = input.adapter.modules_to_save;
    const bool is_whole =
        std::ranges::any_of(saved, [&](const std::string& name) { return module.ends_with(name); });
    if (!is_of_vocabulary(row, input) || is_whole) continue;
    alone.push_back(module);
    saved.push_back(model::last_part(module));
  }
  return alone;
}

/// A matrix has either a low-rank part or rows that are trained. The deck names these nowhere, so
/// that what refuses a module named twice would tell of a key that it does not have.
void refuse_adapted_rows(const std::vector<std::string>& alone, model::AdapterSettings settings,
                         const Input& input, const Registry& registry) {
  if (alone.empty()) return;
  std::erase_if(settings.modules_to_save, [&](const std::string& name) {
    return std::ranges::any_of(
        alone, [&](const std::string& module) { return model::last_part(module) == name; });
  });
  model::ParameterTable table = input.parameters;
  rewrite_for(settings, "", registry, table);
  for (const model::Parameter& part : table.rows) {
    if (part.adapts < 0) continue;
    const std::string module = model::module_of(table.row(part.adapts).name);
    if (std::ranges::find(alone, module) == alone.end()) continue;
    core::fail(core::ErrorKind::deck,
               {input.deck_path.string(),
                fmt::format("adapter.target_modules adapts {}, and model.train_new_tokens trains "
                            "rows of it",
                            module),
                "the rows of new tokens are trained as they are, without low-rank matrices",
                "Set model.train_new_tokens = false, and the adapter trains them with the others; "
                "or leave it out of adapter.target_modules."});
  }
}

/// Ranks of tensor parallelism would share rows out.
void require_whole_rows(Input& input) {
  if (input.parallel.tp > 1)
    core::fail(core::ErrorKind::deck,
               {input.deck_path.string(), fmt::format("parallel.tp = {}", input.parallel.tp),
                "its ranks share out the rows of the embedding, of which only some are trained",
                "Set parallel.tp = 1, or name embedding and head in adapter.modules_to_save."});
  input.parallel.tp = 1;
}

/// Leaves the other rows of these modules as they are.
void train_new_rows(const std::vector<std::string>& alone, Input& input) {
  if (alone.empty()) return;
  require_whole_rows(input);
  for (model::Parameter& row : input.parameters.rows)
    if (row.adapts < 0 && std::ranges::find(alone, model::module_of(row.name)) != alone.end())
      row.trained_rows = {input.first_new_id, input.model.new_tokens.count()};
}

/// The same of an adapter that is gone on from.
void train_token_rows(const weights::PeftAdapter& adapter, Input& input) {
  for (model::Parameter& row : input.parameters.rows) {
    const std::vector<std::int64_t>& ids = adapter.token_rows(row);
    if (ids.empty()) continue;
    for (std::size_t i = 1; i < ids.size(); ++i)
      if (ids[i] != ids[i - 1] + 1)
        core::fail(core::ErrorKind::input,
                   {adapter.folder().string(),
                    fmt::format("trains the rows of tokens {} and {}, and none between", ids[i - 1],
                                ids[i]),
                    "rows are trained that follow each other", model::continue_elsewhere});
    require_whole_rows(input);
    row.trained_rows = {ids.front(), std::ssize(ids)};
  }
}

/// An adapter that others began has no rows for tokens that are new here.
void refuse_new_rows(const Input& input) {
  if (!input.model.new_tokens.any()) return;
  core::fail(core::ErrorKind::deck,
             {input.deck_path.string(), "model.add_tokens with adapter.path",
              "an adapter that is gone on from knows no new tokens",
              "Remove adapter.path to train a new adapter, or name a model that has the tokens."});
}

}  // namespace

void require_adapter_for_its_keys(const model::AdapterSettings& given, const Registry& registry,
                                  deck::Deck& deck) {
  if (given.exists()) return;
  const model::AdapterSettings usual;
  std::vector<std::string> keys;
  for (const model::Adapter& kind : registry.adapters) {
    const auto values = own_keys(kind, given), defaults = own_keys(kind, usual);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto& [key, value] = values[i];
      if (value != defaults[i].second && std::ranges::find(keys, key) == keys.end())
        keys.push_back(key);
    }
  }
  const std::string adapter = adapter_that_reads(keys, registry);
  if (given.path != usual.path) keys.emplace_back("path");
  if (given.target_modules != usual.target_modules) keys.emplace_back("target_modules");
  if (given.exclude_modules != usual.exclude_modules) keys.emplace_back("exclude_modules");
  if (given.layers_to_transform != usual.layers_to_transform)
    keys.emplace_back("layers_to_transform");
  if (given.modules_to_save != usual.modules_to_save) keys.emplace_back("modules_to_save");
  if (keys.empty()) return;
  const bool is_one = keys.size() == 1;
  const std::string removing = is_one ? "the key" : "these keys";
  deck.table("adapter", "")
      .problem(keys.front(),
               fmt::format("adapter.{} {} given, but adapter.name = \"none\"",
                           fmt::join(keys, ", adapter."), is_one ? "is" : "are"),
               "all weights would be trained, and nothing of an adapter",
               adapter.empty()
                   ? fmt::format("No adapter reads all of them: remove {}.", removing)
                   : fmt::format("Set adapter.name = \"{}\", or remove {}.", adapter, removing));
}

std::vector<plan::OtherTable> with_adapters(const Input& input, const Registry& registry) {
  std::vector<plan::OtherTable> tables;
  if (input.adapter.exists()) return tables;
  for (const model::Adapter& adapter : registry.adapters) {
    if (!adapter.is_remedy) continue;
    model::AdapterSettings settings;
    settings.name = adapter.name;
    settings.target_modules = adapter.usual_targets;
    tables.push_back({fmt::format("adapter.name = \"{}\"", adapter.name),
                      [settings, &adapter, table = input.parameters, fp8 = input.numbers().fp8,
                       quantization = input.quantization] {
                        model::ParameterTable changed = table;
                        model::mark_packed(quantization, "", changed);
                        model::put_on(adapter, settings, "", changed);
                        if (fp8) model::keep_in_fp8(*fp8, changed);
                        return changed;
                      }});
  }
  return tables;
}

void adapt(const comm::Communicator& world, const Registry& registry, Input& input) {
  const std::string deck = input.deck_path.string();
  if (!input.adapter.exists())
    comm::agree_all(world, [&] {
      unpack_trained(input.quantization, deck, input.model_folder, input.parameters);
      freeze_named(input);
    });
  save_head(input);
  if (!input.adapter.exists()) return;
  if (input.adapter.path.empty()) {
    comm::agree_all(world, [&] {
      const std::vector<std::string> alone = save_new_rows(input);
      refuse_adapted_rows(alone, input.adapter, input, registry);
      rewrite_for(input.adapter, deck, registry, input.parameters);
      train_new_rows(alone, input);
    });
    return;
  }
  comm::agree_all(world, [&] { refuse_new_rows(input); });
  input.adapter_folder = resolve(input.adapter.path, input.deck_path);
  const auto adapter = weights::PeftAdapter::open(world, input.adapter_folder, registry.adapters);
  comm::agree_all(world, [&] {
    input.adapter = base::take_settings(input.adapter, adapter, deck);
    save_head(input);
    base::update_fixed(input.adapter, input.fixed_values);
    rewrite_for(input.adapter, (input.adapter_folder / weights::peft_config_name).string(),
                registry, input.parameters);
    adapter.require_fits(input.parameters);
    train_token_rows(adapter, input);
  });
}

}  // namespace finetune::train
