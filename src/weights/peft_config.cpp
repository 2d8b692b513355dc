// SPDX-License-Identifier: Apache-2.0
#include "weights/peft_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "core/error.hpp"
#include "core/text.hpp"
#include "model/low_rank_sizes.hpp"
#include "model/names.hpp"
#include "weights/names.hpp"

namespace finetune::weights {
namespace {

constexpr std::int64_t largest_rank = 65536;
constexpr const char* remedy_elsewhere =
    "Continue it where it was trained, or train a new adapter here.";

/// Keys that say nothing about what the tensors mean, or are read below.
constexpr std::array<std::string_view, 30> harmless = {"alpha_pattern",
                                                       "auto_mapping",
                                                       "base_model_name_or_path",
                                                       "bias",
                                                       "corda_config",
                                                       "ensure_weight_tying",
                                                       "eva_config",
                                                       "exclude_modules",
                                                       "inference_mode",
                                                       "init_lora_weights",
                                                       "kasa_config",
                                                       "layers_pattern",
                                                       "layers_to_transform",
                                                       "loftq_config",
                                                       "lora_alpha",
                                                       "lora_dropout",
                                                       "lora_ga_config",
                                                       "megatron_core",
                                                       "modules_to_save",
                                                       "peft_type",
                                                       "peft_version",
                                                       "qalora_group_size",
                                                       "r",
                                                       "rank_pattern",
                                                       "revision",
                                                       "runtime_config",
                                                       "target_modules",
                                                       "task_type",
                                                       "use_dora",
                                                       "use_rslora"};

/// null, false, an empty list: what PEFT writes for options that are not used.
bool is_unused(const core::Json& value) {
  if (value.is_null() || (value.is_boolean() && !value.get<bool>())) return true;
  return (value.is_structured() && value.empty()) ||
         (value.is_string() && value.get_ref<const std::string&>().empty());
}

/// A value of the file for one line of a message.
std::string shown(const core::Json& value) {
  constexpr std::size_t most_bytes = 120;
  std::string text = core::one_line(value.dump());
  if (text.size() > most_bytes) text = text.substr(0, most_bytes) + "...";
  return text;
}

class Reader {
 public:
  Reader(const core::Json& config, const std::string& where) : config_(config), where_(where) {
    if (!config.is_object())
      fail("holds no object", "PEFT writes one with the adapter's options",
           "Is it the right file?");
  }

  [[noreturn]] void fail(const std::string& problem, const std::string& why,
                         const std::string& remedy) const {
    core::fail(core::ErrorKind::input, {where_, problem, why, remedy});
  }

  [[noreturn]] void refuse(const std::string& key, const std::string& why) const {
    fail(fmt::format("{} = {}", core::one_line(key), shown(config_.at(key))), why,
         remedy_elsewhere);
  }

  bool has(const char* key) const { return config_.contains(key) && !is_unused(config_[key]); }

  bool boolean(const char* key) const {
    if (!has(key)) return false;
    if (!config_[key].is_boolean()) refuse(key, "it is true or false in PEFT's files");
    return config_[key].get<bool>();
  }

  double number(const char* key, double otherwise) const {
    const auto found = config_.find(key);
    if (found == config_.end() || found->is_null()) return otherwise;
    if (!found->is_number()) refuse(key, "it is a number in PEFT's files");
    return found->get<double>();
  }

  std::vector<std::string> texts(const char* key) const {
    std::vector<std::string> all;
    if (!has(key)) return all;
    if (!config_[key].is_array()) refuse(key, "it is a list of names in PEFT's files");
    for (const core::Json& entry : config_[key]) {
      if (!entry.is_string()) refuse(key, "it is a list of names in PEFT's files");
      all.push_back(entry.get<std::string>());
    }
    std::ranges::sort(all);  // PEFT writes a set in any order
    return all;
  }

  /// Ranks or alphas by module, as "PATTERN=VALUE".
  std::vector<std::string> patterns(const char* key, bool are_ranks) const {
    std::vector<std::string> entries;
    if (!has(key)) return entries;
    if (!config_[key].is_object()) refuse(key, "it is an object in PEFT's files");
    for (const auto& [pattern, value] : config_[key].items()) {
      const bool is_fit =
          are_ranks ? value.is_number_integer() && value >= 1 && value <= largest_rank
                    : value.is_number() && value > 0 && std::isfinite(value.get<double>());
      if (!is_fit)
        refuse(key, are_ranks ? "a rank is an integer from 1 to 65536" : "an alpha is above 0");
      entries.push_back(model::PatternValue{pattern, value.get<double>()}.text());
    }
    return entries;
  }

  /// What is on, and would make something else of the tensors.
  void refuse_unknown() const {
    for (const auto& [key, value] : config_.items()) {
      if (is_unused(value) || std::ranges::find(harmless, key) != harmless.end()) continue;
      refuse(key,
             "this option of PEFT is not done here, and without it the tensors mean something "
             "else");
    }
  }

  const core::Json& config() const { return config_; }

 private:
  const core::Json& config_;
  const std::string& where_;
};

void require_lora(const Reader& reader) {
  const core::Json& config = reader.config();
  const core::Json type = config.value("peft_type", core::Json());
  if (type != "LORA") {
    reader.fail(fmt::format("peft_type = {}", shown(type)), "of PEFT's adapters \"LORA\" is read",
                remedy_elsewhere);
  }
  const core::Json task = config.value("task_type", core::Json());
  if (!task.is_null() && task != "CAUSAL_LM")
    reader.refuse("task_type", "models are trained to continue text: \"CAUSAL_LM\"");
  const core::Json bias = config.value("bias", core::Json("none"));
  if (!bias.is_null() && bias != "none")
    reader.refuse("bias", "biases of adapted matrices are not trained: \"none\"");
  // The others change the base weights, or write an adapter for changed ones.
  constexpr std::array<std::string_view, 2> starts = {"gaussian", "orthogonal"};
  const core::Json start = config.value("init_lora_weights", core::Json(true));
  const bool is_plain =
      start.is_null() || start.is_boolean() ||
      (start.is_string() && std::ranges::find(starts, start.get<std::string>()) != starts.end());
  if (!is_plain) {
    reader.refuse("init_lora_weights",
                  "such an adapter belongs to weights that were changed when it began");
  }
}

std::int64_t read_rank(const Reader& reader) {
  const core::Json rank = reader.config().value("r", core::Json());
  const bool fits = rank.is_number_integer() && rank >= 1 && rank <= largest_rank;
  if (!fits) {
    reader.fail(fmt::format("r = {}", shown(rank)),
                fmt::format("the rank is an integer from 1 to {}", largest_rank),
                "Restore the file that PEFT wrote.");
  }
  return rank.get<std::int64_t>();
}

void read_targets(const Reader& reader, PeftConfig& result) {
  const core::Json& config = reader.config();
  const auto found = config.find("target_modules");
  const bool leaves_out = reader.has("exclude_modules") || reader.has("layers_to_transform") ||
                          reader.has("layers_pattern");
  result.targets_are_in_tensors =
      leaves_out || found == config.end() || found->is_null() || found->is_string();
  result.settings.target_modules.clear();
  if (!result.targets_are_in_tensors)
    result.settings.target_modules = reader.texts("target_modules");
}

/// Entries by their patterns, as PEFT sorts them when it saves; of equal ones the first.
std::vector<std::string> sorted_patterns(const std::vector<std::string>& entries) {
  std::map<std::string, std::string> sorted;
  for (const std::string& entry : entries)
    sorted.emplace(model::PatternValue::parse(entry).value().key, entry);
  std::vector<std::string> texts;
  for (const auto& [key, entry] : sorted)
    texts.push_back(entry);
  return texts;
}

/// rank_pattern and alpha_pattern. PEFT takes the first that matches of the sorted ones: those of
/// `settings` are written if that comes to the same for all modules, else the modules' whole names.
std::pair<core::Json, core::Json> to_patterns(const model::AdapterSettings& settings,
                                              const std::vector<std::string>& adapted) {
  std::pair patterns(core::Json::object(), core::Json::object());
  auto& [ranks, alphas] = patterns;
  const model::LowRankSizes own(settings, peft_config_name);
  model::AdapterSettings sorted = settings;
  sorted.rank_pattern = sorted_patterns(settings.rank_pattern);
  sorted.alpha_pattern = sorted_patterns(settings.alpha_pattern);
  const model::LowRankSizes others(sorted, peft_config_name);
  if (std::ranges::all_of(adapted, [&](const std::string& module) {
        return own.rank(module) == others.rank(module) && own.alpha(module) == others.alpha(module);
      })) {
    for (const std::string& entry : sorted.rank_pattern) {
      const auto parsed = model::PatternValue::parse(entry).value();
      ranks[parsed.key] = static_cast<std::int64_t>(parsed.value);
    }
    for (const std::string& entry : sorted.alpha_pattern) {
      const auto parsed = model::PatternValue::parse(entry).value();
      alphas[parsed.key] = parsed.value;
    }
    return patterns;
  }
  for (const std::string& module : adapted) {
    std::string name;
    for (const char c : module)
      name += c == '.' ? "\\." : std::string(1, c);
    if (own.rank(module) != settings.lora_r) ranks[name] = own.rank(module);
    if (own.alpha(module) != settings.lora_alpha) alphas[name] = own.alpha(module);
  }
  return patterns;
}

bool is_end_of(const std::string& end, const std::string& module) {
  return module == end || module.ends_with("." + end);
}

}  // namespace

PeftConfig read_peft_config(const core::Json& config, const std::string& where) {
  const Reader reader(config, where);
  require_lora(reader);
  reader.refuse_unknown();
  PeftConfig result;
  model::AdapterSettings& settings = result.settings;
  settings.name.clear();
  settings.lora_r = read_rank(reader);
  settings.lora_alpha = reader.number("lora_alpha", 8);
  if (!(settings.lora_alpha > 0) || !std::isfinite(settings.lora_alpha))
    reader.fail(fmt::format("lora_alpha = {}", settings.lora_alpha), "it is a number above 0",
                "Restore the file that PEFT wrote.");
  settings.lora_dropout = reader.number("lora_dropout", 0);
  if (!(settings.lora_dropout >= 0 && settings.lora_dropout < 1))
    reader.fail(fmt::format("lora_dropout = {}", settings.lora_dropout),
                "it is a part: at least 0, and below 1", "Restore the file that PEFT wrote.");
  settings.use_rslora = reader.boolean("use_rslora");
  settings.use_dora = reader.boolean("use_dora");
  settings.modules_to_save = reader.texts("modules_to_save");
  settings.rank_pattern = reader.patterns("rank_pattern", true);
  settings.alpha_pattern = reader.patterns("alpha_pattern", false);
  result.keeps_ties = reader.boolean("ensure_weight_tying");
  read_targets(reader, result);
  return result;
}

void keep_pattern_order(const nlohmann::ordered_json& config, model::AdapterSettings& settings) {
  for (auto [key, entries] : {std::pair("rank_pattern", &settings.rank_pattern),
                              std::pair("alpha_pattern", &settings.alpha_pattern)}) {
    if (entries->empty()) continue;
    std::vector<std::string> ordered;
    for (const auto& item : config.at(key).items()) {
      const auto is_of = [&](const std::string& entry) {
        return model::PatternValue::parse(entry).value().key == item.key();
      };
      const auto found = std::ranges::find_if(*entries, is_of);
      if (found != entries->end()) ordered.push_back(*found);
    }
    if (ordered.size() == entries->size()) *entries = std::move(ordered);
  }
}

core::Json to_peft_config(const model::AdapterSettings& settings,
                          const std::vector<std::string>& modules,
                          const std::vector<std::string>& adapted) {
  std::set<std::string> targets;
  const std::set<std::string> chosen(adapted.begin(), adapted.end());
  for (const std::string& module : adapted) {
    const std::string end = module.substr(module.rfind('.') + 1);
    const bool means_others = std::ranges::any_of(modules, [&](const std::string& other) {
      return is_end_of(end, other) && !chosen.contains(other);
    });
    targets.insert(means_others ? module : end);
  }
  core::Json saved;
  if (!settings.modules_to_save.empty()) saved = settings.modules_to_save;
  const auto [ranks, alphas] = to_patterns(settings, adapted);
  return {{"peft_type", "LORA"},
          {"task_type", "CAUSAL_LM"},
          {"inference_mode", true},
          {"base_model_name_or_path", nullptr},
          {"revision", nullptr},
          {"r", settings.lora_r},
          {"lora_alpha", settings.lora_alpha},
          {"lora_dropout", settings.lora_dropout},
          {"target_modules", targets},
          {"modules_to_save", saved},
          {"use_rslora", settings.use_rslora},
          {"use_dora", settings.use_dora},
          {"bias", "none"},
          {"lora_bias", false},
          {"fan_in_fan_out", false},
          {"init_lora_weights", true},
          {"rank_pattern", ranks},
          {"alpha_pattern", alphas},
          {"layers_to_transform", nullptr},
          {"layers_pattern", nullptr}};
}

core::Json to_peft_config(const model::AdapterSettings& settings,
                          const model::ParameterTable& table) {
  std::vector<std::string> modules, adapted;
  for (const model::Parameter& row : table.rows) {
    if (row.adapts >= 0) continue;
    modules.push_back(model::module_of(row.name));
    if (row.low_rank.exists()) adapted.push_back(modules.back());
  }
  core::Json config = to_peft_config(settings, modules, adapted);
  if (trains_tied_embedding(table)) config["ensure_weight_tying"] = true;
  return config;
}

bool trains_tied_embedding(const model::ParameterTable& table) {
  const auto is = [](model::Role role) {
    return [role](const model::Parameter& row) { return row.role == role; };
  };
  const auto embedding = std::ranges::find_if(table.rows, is(model::Role::embedding));
  return embedding != table.rows.end() && embedding->trainable &&
         std::ranges::none_of(table.rows, is(model::Role::head));
}

}  // namespace finetune::weights
