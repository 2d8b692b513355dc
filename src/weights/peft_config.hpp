#pragma once
// SPDX-License-Identifier: Apache-2.0
// adapter_config.json: what PEFT writes about an adapter, in our settings and back.

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/json.hpp"
#include "model/adapter.hpp"
#include "model/parameter_table.hpp"

namespace finetune::weights {

inline constexpr const char* peft_config_name = "adapter_config.json";
/// What PEFT calls the head of a model whose head is its embedding.
inline constexpr const char* tied_head = "lm_head";
inline constexpr std::int64_t largest_peft_config_bytes = std::int64_t{1} << 20;

struct PeftConfig {
  model::AdapterSettings settings;       ///< name and path are empty
  const model::Adapter* kind = nullptr;  ///< the first that has its type
  /// Which modules are adapted follows from the tensors alone: a pattern chooses them, or some
  /// layers are left out. settings.target_modules is empty.
  bool targets_are_in_tensors = false;
  /// The head of a model with tied embeddings stays the same tensor as a trained embedding.
  bool keeps_ties = false;
  /// Modules, by the ends of their names, of which only the rows of some tokens are trained. They
  /// are among settings.modules_to_save as well.
  std::map<std::string, std::vector<std::int64_t>> token_rows = {};
};

/// Reads adapter_config.json, which `in_order` has with its keys as in the file, if that is known.
/// Throws: ErrorKind::input, beginning with `where`, for what is none of `kinds`, and for every
/// option that changes what the tensors mean and is not done here.
PeftConfig read_peft_config(const core::Json& config, const std::string& where,
                            std::span<const model::Adapter> kinds,
                            const nlohmann::ordered_json* in_order = nullptr);

/// The same as PEFT writes it. `modules` are those of the model, of which some are `adapted`: the
/// shortest ends of their names that mean no other are written.
core::Json to_peft_config(const model::AdapterSettings& settings, const model::Adapter& kind,
                          const std::vector<std::string>& modules,
                          const std::vector<std::string>& adapted);

/// That of a table that an adapter rewrote.
core::Json to_peft_config(const model::AdapterSettings& settings, const model::Adapter& kind,
                          const model::ParameterTable& table);

/// Whether the embedding is trained or adapted, and is the head as well.
bool changes_tied_embedding(const model::ParameterTable& table);

}  // namespace finetune::weights
