// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "deck/value.hpp"
#include "migrate/detail/settle.hpp"

namespace finetune::migrate {
namespace {

constexpr auto keys_of_adapters = std::to_array<const char*>(
    {"adapter.lora_r", "adapter.lora_alpha", "adapter.lora_dropout", "adapter.use_rslora",
     "adapter.use_dora", "adapter.target_modules", "adapter.modules_to_save",
     "adapter.target_parameters", "adapter.init", "adapter.double_quant",
     "adapter.loraplus_lr_ratio", "adapter.loraplus_embedding_lr_ratio", "adapter.path"});

/// Whether frozen weights are kept in 4 bits there.
bool has_four_bits(Draft& draft) {
  const Fact* bits = draft.fact("bits");
  const std::string text = bits == nullptr ? "" : bits->value.text;
  const bool is_four = text == "4" || text.starts_with("bnb.nf4") || text.starts_with("bnb.fp4");
  if (text == "bnb.nf4") draft.set("adapter.double_quant", "false", bits->name);
  if (text == "bnb.nf4-dq") draft.set("adapter.double_quant", "true", bits->name);
  constexpr const char* in_sixteen =
      "frozen weights are kept in 16 bits; adapter.name = \"qlora\" keeps them in 4";
  if (bits != nullptr && !is_four && !bits->value.is_off())
    draft.note(Kind::differs, fmt::format("{} = {}", bits->name, text), in_sixteen);
  if (text.starts_with("bnb.fp4"))
    draft.note(Kind::differs, fmt::format("{} = {}", bits->name, text), "4 bits are NF4");
  if (draft.is_on("8bit")) draft.note(Kind::differs, draft.fact("8bit")->name, in_sixteen);
  return is_four || draft.is_on("4bit");
}

/// finetuning_type = freeze of LLaMA-Factory: some modules of the first or the last layers.
void settle_trained_layers(Draft& draft) {
  constexpr std::int64_t usual_layers = 2, most_layers = 1000;
  const Fact* fact = draft.fact("frozen_layers");
  const std::int64_t layers = draft.integer("frozen_layers").value_or(usual_layers);
  const std::string shown =
      fact == nullptr ? "finetuning_type = freeze" : fmt::format("{} = {}", fact->name, layers);
  const auto named = [&](const char* modules_of) {
    const Fact* its = draft.fact(modules_of);
    return its == nullptr ? std::vector<std::string>() : names_in(its->value);
  };
  std::vector<std::string> modules = named("trained_modules");
  if (std::ranges::find(modules, "all") != modules.end()) modules.clear();
  const std::vector<std::string> extra = named("extra_modules");
  if (layers >= 0 || layers < -most_layers) {
    draft.stop(fact == nullptr ? Node{} : fact->value, shown,
               "it trains so many of the last layers, and a deck counts them from the first",
               "train.trainable=layers[.](30|31)[.]");
    return;
  }
  std::vector<std::int64_t> numbers;
  for (std::int64_t i = 0; i < -layers; ++i)
    numbers.push_back(i);
  std::string pattern = fmt::format("layers[.]({})[.]", fmt::join(numbers, "|"));
  if (!modules.empty()) pattern += fmt::format(".*({})", fmt::join(modules, "|"));
  std::vector<std::string> trainable = {pattern};
  trainable.insert(trainable.end(), extra.begin(), extra.end());
  draft.set("train.trainable", deck::to_toml(trainable), shown);
}

void drop_keys(Draft& draft) {
  for (const char* key : keys_of_adapters) {
    if (!draft.has(key) || draft.is_given(key)) continue;
    draft.drop(key);
    draft.note(Kind::needless, key, "all weights are trained");
  }
}

}  // namespace

void settle_adapter(const Source& source, Draft& draft) {
  const Fact* named = draft.fact("adapter");
  std::string name = named == nullptr ? "none" : named->value.text;
  const bool is_of_layers = name == "freeze";
  if (name == "full" || is_of_layers) name = "none";
  if (named == nullptr && draft.is_on("use_lora")) name = "lora";
  const bool is_packed = has_four_bits(draft);
  constexpr auto known = std::to_array<std::string_view>({"none", "lora", "qlora"});
  if (std::ranges::find(known, name) == known.end()) {
    draft.stop(named->value, fmt::format("{} = {}", named->name, named->value.shown()),
               "what is trained is all weights, or an adapter (lora, qlora, ia3)",
               "adapter.name=lora");
    name = "lora";
  }
  if (is_packed && name == "none")
    draft.stop({}, "all weights are trained, of a model that is loaded in 4 bits",
               "4 bits have no gradient", "adapter.name=qlora");
  if (is_packed && name == "lora") name = "qlora";
  draft.set("adapter.name", deck::to_toml(name), named == nullptr ? "" : named->name);
  if (draft.value("adapter.name") == "\"none\"") {
    if (is_of_layers) settle_trained_layers(draft);
    drop_keys(draft);
    return;
  }
  settle_targets(draft);
  settle_starts(draft);
  const bool packs = draft.value("adapter.name") == "\"qlora\"";
  for (const Default& each : source.defaults) {
    if (each.key == "adapter.double_quant" && !packs) continue;
    if (each.key.starts_with("adapter."))
      draft.set(std::string(each.key), std::string(each.value),
                fmt::format("the default of {}", source.title));
  }
  if (!packs) draft.drop("adapter.double_quant");
}

}  // namespace finetune::migrate
