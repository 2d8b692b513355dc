#pragma once
// SPDX-License-Identifier: Apache-2.0
// The keys of low-rank adapters. The names are those of PEFT.

#include <cstdint>
#include <string>
#include <vector>

#include "model/adapter.hpp"

namespace finetune::adapters::lora {

struct Settings {
  std::int64_t r = 8;
  double alpha = 16;
  double dropout = 0;
  /// "PATTERN=VALUE": rank or alpha of the modules that the pattern matches (LowRankSizes).
  std::vector<std::string> rank_pattern = {};
  std::vector<std::string> alpha_pattern = {};
  std::vector<std::string> target_parameters = {};
  std::string init = "lora";  ///< StartKind
  bool use_rslora = false;
  bool use_dora = false;
  double loraplus_lr_ratio = 1;
  double loraplus_embedding_lr_ratio = 1;
};

/// As model::Adapter::bind, dropout and keep_of_deck.
void bind(model::AdapterSettings& settings, deck::Table& table);
double dropout(const model::AdapterSettings& settings);
void keep_of_deck(const model::AdapterSettings& deck, model::AdapterSettings& settings);

}  // namespace finetune::adapters::lora
