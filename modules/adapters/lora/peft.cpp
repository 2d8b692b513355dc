// SPDX-License-Identifier: Apache-2.0
#include "adapters/lora/peft.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string_view>
#include <utility>

#include "adapters/lora/settings.hpp"
#include "adapters/lora/sizes.hpp"
#include "adapters/lora/start_kind.hpp"

namespace finetune::adapters::lora {
namespace {

using model::PeftOptions;

constexpr std::int64_t largest_rank = 65536;
/// Of checkpoints alone: what the matrices begin with lies beside them.
constexpr const char* keeps_starts = "keeps_starts";
constexpr const char* restore = "Restore the file that PEFT wrote.";

/// Options that are read below, or say nothing about what the tensors mean.
const std::vector<std::string_view> known = {"alpha_pattern",
                                             "bias",
                                             "corda_config",
                                             "eva_config",
                                             "init_lora_weights",
                                             "kasa_config",
                                             "loftq_config",
                                             "lora_alpha",
                                             "lora_dropout",
                                             "lora_ga_config",
                                             "megatron_core",
                                             "qalora_group_size",
                                             "r",
                                             "rank_pattern",
                                             "runtime_config",
                                             keeps_starts,
                                             "target_parameters",
                                             "use_dora",
                                             "use_rslora"};

void require_plain(const PeftOptions& options) {
  const core::Json& config = options.config();
  const core::Json bias = config.value("bias", core::Json("none"));
  if (!bias.is_null() && bias != "none")
    options.refuse("bias", "biases of adapted matrices are not trained: \"none\"");
  // The others change the base weights, or write an adapter for changed ones.
  constexpr std::array<std::string_view, 2> starts = {"gaussian", "orthogonal"};
  const core::Json start = config.value("init_lora_weights", core::Json(true));
  if (start.is_string() && options.boolean(keeps_starts) &&
      StartKind::parse(start.get<std::string>()))
    return;
  const bool is_plain =
      start.is_null() || start.is_boolean() ||
      (start.is_string() && std::ranges::find(starts, start.get<std::string>()) != starts.end());
  if (!is_plain) {
    options.refuse("init_lora_weights",
                   "such an adapter belongs to weights that were changed when it began; PEFT's "
                   "save_pretrained with path_initial_model_for_weight_conversion writes one of "
                   "those that they were");
  }
}

/// Ranks or alphas by module, as "PATTERN=VALUE". Of several that match a module PEFT takes the
/// first.
std::vector<std::string> patterns(const PeftOptions& options, const char* key, bool are_ranks) {
  std::vector<std::string> entries;
  for (const std::string& pattern : options.keys(key)) {
    const core::Json& value = options.config()[key][pattern];
    const bool is_fit = are_ranks
                            ? value.is_number_integer() && value >= 1 && value <= largest_rank
                            : value.is_number() && value > 0 && std::isfinite(value.get<double>());
    if (!is_fit)
      options.refuse(key,
                     are_ranks ? "a rank is an integer from 1 to 65536" : "an alpha is above 0");
    entries.push_back(PatternValue{pattern, value.get<double>()}.text());
  }
  return entries;
}

std::int64_t read_rank(const PeftOptions& options) {
  const core::Json rank = options.config().value("r", core::Json());
  const bool fits = rank.is_number_integer() && rank >= 1 && rank <= largest_rank;
  if (!fits) {
    options.fail(fmt::format("r = {}", model::shown(rank)),
                 fmt::format("the rank is an integer from 1 to {}", largest_rank), restore);
  }
  return rank.get<std::int64_t>();
}

/// Entries by their patterns, as PEFT sorts them when it saves; of equal ones the first.
std::vector<std::string> sorted_patterns(const std::vector<std::string>& entries) {
  std::map<std::string, std::string> sorted;
  for (const std::string& entry : entries)
    sorted.emplace(PatternValue::parse(entry).value().key, entry);
  std::vector<std::string> texts;
  for (const auto& [key, entry] : sorted)
    texts.push_back(entry);
  return texts;
}

/// rank_pattern and alpha_pattern. PEFT takes the first that matches of the sorted ones: those of
/// `settings` are written if that comes to the same for all modules, else the modules' whole names.
std::pair<core::Json, core::Json> to_patterns(const Settings& settings,
                                              const std::vector<std::string>& adapted) {
  std::pair patterns(core::Json::object(), core::Json::object());
  auto& [ranks, alphas] = patterns;
  const LowRankSizes own(settings, "adapter_config.json");
  Settings sorted = settings;
  sorted.rank_pattern = sorted_patterns(settings.rank_pattern);
  sorted.alpha_pattern = sorted_patterns(settings.alpha_pattern);
  const LowRankSizes others(sorted, "adapter_config.json");
  if (std::ranges::all_of(adapted, [&](const std::string& module) {
        return own.rank(module) == others.rank(module) && own.alpha(module) == others.alpha(module);
      })) {
    for (const std::string& entry : sorted.rank_pattern) {
      const auto parsed = PatternValue::parse(entry).value();
      ranks[parsed.key] = static_cast<std::int64_t>(parsed.value);
    }
    for (const std::string& entry : sorted.alpha_pattern) {
      const auto parsed = PatternValue::parse(entry).value();
      alphas[parsed.key] = parsed.value;
    }
    return patterns;
  }
  for (const std::string& module : adapted) {
    std::string name;
    for (const char c : module)
      name += c == '.' ? "\\." : std::string(1, c);
    if (own.rank(module) != settings.r) ranks[name] = own.rank(module);
    if (own.alpha(module) != settings.alpha) alphas[name] = own.alpha(module);
  }
  return patterns;
}

}  // namespace

void read_peft(const model::PeftOptions& options, model::AdapterSettings& adapter) {
  require_plain(options);
  options.refuse_others(known);
  Settings& settings = adapter.of<Settings>();
  settings.r = read_rank(options);
  settings.alpha = options.number("lora_alpha", 8);
  if (!(settings.alpha > 0) || !std::isfinite(settings.alpha))
    options.fail(fmt::format("lora_alpha = {}", settings.alpha), "it is a number above 0", restore);
  settings.dropout = options.number("lora_dropout", 0);
  if (!(settings.dropout >= 0 && settings.dropout < 1))
    options.fail(fmt::format("lora_dropout = {}", settings.dropout),
                 "it is a part: at least 0, and below 1", restore);
  settings.init = options.boolean(keeps_starts)
                      ? options.config().at("init_lora_weights").get<std::string>()
                      : Settings().init;
  settings.use_rslora = options.boolean("use_rslora");
  settings.use_dora = options.boolean("use_dora");
  settings.target_parameters = options.texts("target_parameters");
  settings.rank_pattern = patterns(options, "rank_pattern", true);
  settings.alpha_pattern = patterns(options, "alpha_pattern", false);
}

void write_peft(const model::AdapterSettings& adapter, const std::vector<std::string>& adapted,
                core::Json& config) {
  const auto settings = adapter.of<Settings>();
  const auto [ranks, alphas] = to_patterns(settings, adapted);
  if (settings.init != Settings().init) config[keeps_starts] = true;
  const core::Json start =
      settings.init == Settings().init ? core::Json(true) : core::Json(settings.init);
  if (!settings.target_parameters.empty()) config["target_parameters"] = settings.target_parameters;
  config.update({{"r", settings.r},
                 {"lora_alpha", settings.alpha},
                 {"lora_dropout", settings.dropout},
                 {"use_rslora", settings.use_rslora},
                 {"use_dora", settings.use_dora},
                 {"bias", "none"},
                 {"lora_bias", false},
                 {"fan_in_fan_out", false},
                 {"init_lora_weights", start},
                 {"rank_pattern", ranks},
                 {"alpha_pattern", alphas},
                 {"layers_to_transform", nullptr},
                 {"layers_pattern", nullptr}});
}

}  // namespace finetune::adapters::lora
