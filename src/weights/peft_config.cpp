// SPDX-License-Identifier: Apache-2.0
#include "weights/peft_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <string_view>

#include "core/error.hpp"
#include "core/text.hpp"
#include "model/names.hpp"
#include "weights/names.hpp"

namespace finetune::weights {
namespace {

constexpr std::int64_t largest_rank = 65536;
constexpr const char* remedy_elsewhere =
    "Continue it where it was trained, or train a new adapter here.";

/// Keys that say nothing about what the tensors mean, or are read below.
constexpr std::array<std::string_view, 28> harmless = {"auto_mapping",
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
  result.keeps_ties = reader.boolean("ensure_weight_tying");
  read_targets(reader, result);
  return result;
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
          {"rank_pattern", core::Json::object()},
          {"alpha_pattern", core::Json::object()},
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
