#pragma once
// SPDX-License-Identifier: Apache-2.0
// What a model folder's small files say: family, numbers, parameters, and how they are packed.

#include <filesystem>
#include <string>

#include "comm/communicator.hpp"
#include "model/adapter.hpp"
#include "model/family.hpp"
#include "model/quantization.hpp"
#include "train/input/registry.hpp"

namespace finetune::train {

struct DescribedModel {
  const model::ModelFamily* family = nullptr;  ///< points into the registry
  model::Architecture architecture;
  model::Quantization quantization;  ///< of the model's files
  model::ParameterTable parameters;  ///< what is packed in the files is marked, and frozen
};

/// Reads config.json and, where it is, quantize_config.json. The root reads, everybody gets the
/// texts and parses them. Collective on `world`. Throws: comm::AgreedError of ErrorKind::input.
DescribedModel describe_model(const comm::Communicator& world, const std::filesystem::path& folder,
                              const Registry& registry);

/// Makes of `table` what the adapter that `settings` name makes of it; `where` begins messages.
/// Throws: ErrorKind::deck.
void rewrite_for(const model::AdapterSettings& settings, const std::string& where,
                 const Registry& registry, model::ParameterTable& table);

}  // namespace finetune::train
