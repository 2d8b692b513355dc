// SPDX-License-Identifier: Apache-2.0
#include "model/peft_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/error.hpp"
#include "core/text.hpp"

namespace finetune::model {
namespace {

/// Keys that say nothing about what tensors mean, or are read for every adapter.
constexpr std::array<std::string_view, 14> common = {"auto_mapping",
                                                     "base_model_name_or_path",
                                                     "ensure_weight_tying",
                                                     "exclude_modules",
                                                     "inference_mode",
                                                     "layers_pattern",
                                                     "layers_to_transform",
                                                     "modules_to_save",
                                                     "peft_type",
                                                     "peft_version",
                                                     "revision",
                                                     "target_modules",
                                                     "task_type",
                                                     "trainable_token_indices"};

/// null, false, an empty list: what PEFT writes for options that are not used.
bool is_unused(const core::Json& value) {
  if (value.is_null() || (value.is_boolean() && !value.get<bool>())) return true;
  return (value.is_structured() && value.empty()) ||
         (value.is_string() && value.get_ref<const std::string&>().empty());
}

}  // namespace

std::string shown(const core::Json& value) {
  constexpr std::size_t most_bytes = 120;
  std::string text = core::one_line(value.dump());
  if (text.size() > most_bytes) text.replace(most_bytes, std::string::npos, "...");
  return text;
}

PeftOptions::PeftOptions(const core::Json& config, const std::string& where,
                         const nlohmann::ordered_json* in_order)
    : config_(config), where_(where), in_order_(in_order) {
  if (!config.is_object())
    fail("holds no object", "PEFT writes one with the adapter's options", "Is it the right file?");
}

void PeftOptions::fail(const std::string& problem, const std::string& why,
                       const std::string& remedy) const {
  core::fail(core::ErrorKind::input, {where_, problem, why, remedy});
}

void PeftOptions::refuse(const std::string& key, const std::string& why) const {
  fail(fmt::format("{} = {}", core::one_line(key), shown(config_.at(key))), why,
       continue_elsewhere);
}

void PeftOptions::refuse_others(const std::vector<std::string_view>& known) const {
  for (const auto& [key, value] : config_.items()) {
    if (is_unused(value) || std::ranges::find(common, key) != common.end() ||
        std::ranges::find(known, key) != known.end())
      continue;
    refuse(key,
           "this option of PEFT is not done here, and without it the tensors mean something else");
  }
}

bool PeftOptions::has(const char* key) const {
  return config_.contains(key) && !is_unused(config_[key]);
}

bool PeftOptions::boolean(const char* key) const {
  if (!has(key)) return false;
  if (!config_[key].is_boolean()) refuse(key, "it is true or false in PEFT's files");
  return config_[key].get<bool>();
}

double PeftOptions::number(const char* key, double otherwise) const {
  const auto found = config_.find(key);
  if (found == config_.end() || found->is_null()) return otherwise;
  if (!found->is_number()) refuse(key, "it is a number in PEFT's files");
  return found->get<double>();
}

std::vector<std::string> PeftOptions::texts(const char* key) const {
  std::vector<std::string> all;
  if (!has(key)) return all;
  if (!config_[key].is_array()) refuse(key, "it is a list of names in PEFT's files");
  for (const core::Json& entry : config_[key]) {
    if (!entry.is_string()) refuse(key, "it is a list of names in PEFT's files");
    all.push_back(entry.get<std::string>());
  }
  std::ranges::sort(all);
  return all;
}

std::vector<std::string> PeftOptions::keys(const char* key) const {
  std::vector<std::string> all;
  if (!has(key)) return all;
  if (!config_[key].is_object()) refuse(key, "it is an object in PEFT's files");
  if (in_order_ != nullptr) {
    for (const auto& item : in_order_->at(key).items())
      all.push_back(item.key());
  } else {
    for (const auto& item : config_[key].items())
      all.push_back(item.key());
  }
  return all;
}

}  // namespace finetune::model
