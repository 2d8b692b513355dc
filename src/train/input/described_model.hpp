#pragma once
// SPDX-License-Identifier: Apache-2.0
// What a model folder's small files say: family, numbers, parameters, and how they are packed.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "core/json.hpp"
#include "model/adapter.hpp"
#include "model/family.hpp"
#include "model/outputs.hpp"
#include "model/quantization.hpp"
#include "train/input/registry.hpp"

namespace finetune::train {

struct DescribedModel {
  const model::ModelFamily* family = nullptr;  ///< points into the registry
  model::Architecture architecture;
  model::Quantization quantization;  ///< of the model's files
  model::ParameterTable parameters;  ///< what is packed in the files is marked, and frozen
  /// What config.json says of it in addition to the folder's: null, or with a head of its own.
  core::Json changes = {};
};

/// What a deck, or a run, makes of a model's head: nothing, or what describe_outputs says.
struct ChosenOutputs {
  model::HeadKind kind = model::HeadKind::next_token;
  std::vector<std::string> labels = {};
  std::int64_t vocab_size = 0;  ///< at least so many rows of the embedding
};
/// Of `changes` that a run noted; next_token of null.
ChosenOutputs outputs_of(const core::Json& changes);

/// Reads config.json and, where they are, quantize_config.json and hf_quant_config.json. The root
/// reads, everybody gets the texts and parses them. Collective on `world`. Throws:
/// comm::AgreedError of ErrorKind::input. With `chosen` outputs it is the model with a head for
/// them: one of the folder's, if that has one for as many of the kind, else a new one.
DescribedModel describe_model(const comm::Communicator& world, const std::filesystem::path& folder,
                              const Registry& registry, const ChosenOutputs& chosen = {});

/// Raises the size of the vocabulary in a config.json to `vocab_size`, also in that of its text
/// part.
void set_vocab_size(std::int64_t vocab_size, core::Json& config);

/// Makes dense rows of those that the model's files have packed, to train all weights: they are
/// unpacked as they are read. `deck` and `folder` begin messages. Throws: ErrorKind::deck for NF4.
void unpack_trained(const model::Quantization& quantization, const std::string& deck,
                    const std::filesystem::path& folder, model::ParameterTable& table);

/// One sentence where the files are packed and the rows of `table` are not; else empty.
std::string unpacking_note(const model::Quantization& quantization,
                           const model::ParameterTable& table);

/// Makes of `table` what the adapter that `settings` name makes of it; `where` begins messages.
/// Throws: ErrorKind::deck.
void rewrite_for(const model::AdapterSettings& settings, const std::string& where,
                 const Registry& registry, model::ParameterTable& table);

}  // namespace finetune::train
