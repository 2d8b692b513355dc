#pragma once
// SPDX-License-Identifier: Apache-2.0
// What an adapter provides; one descriptor each in modules/adapters. And the table [adapter].

#include <cstdint>
#include <string>
#include <vector>

#include "deck/deck.hpp"
#include "model/architecture.hpp"
#include "model/parameter_table.hpp"

namespace finetune::model {

/// The names are those of PEFT.
struct AdapterSettings {
  std::string name = "none";
  std::string path;
  std::int64_t lora_r = 8;
  double lora_alpha = 16;
  double lora_dropout = 0;
  std::vector<std::string> target_modules = {"all-linear"};
  std::vector<std::string> modules_to_save = {};
  /// "PATTERN=VALUE": rank or alpha of the modules that the pattern matches (LowRankSizes).
  std::vector<std::string> rank_pattern = {};
  std::vector<std::string> alpha_pattern = {};
  bool use_rslora = false;
  bool use_dora = false;
  bool double_quant = true;

  /// `names`: what adapters there are.
  void bind(deck::Table& table, const std::vector<std::string>& names);

  bool exists() const { return name != "none"; }
};

/// Turns a table of a model into that of the model with an adapter: freezes, marks what is to be
/// packed, and adds the adapter's rows behind the others, in a unit of their own.
struct Adapter {
  std::string name;
  /// `where` begins messages; without it nothing is warned of. Throws: ErrorKind::deck, naming what
  /// is not in the model.
  void (*rewrite)(const AdapterSettings& settings, const std::string& where, ParameterTable& table);
};

/// The unit of all adapter rows.
inline constexpr const char* adapter_unit = "adapters";
/// How PEFT's files begin the names of what they hold.
inline constexpr const char* peft_prefix = "base_model.model.";

}  // namespace finetune::model
