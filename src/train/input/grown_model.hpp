#pragma once
// SPDX-License-Identifier: Apache-2.0
// A model with the new tokens of model.add_tokens: a folder of what is changed, beside the run.

#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "train/input/input.hpp"

namespace finetune::train {

/// Id of the first new token of the deck; 0 without any. The root looks. Collective on `world`.
/// Throws: comm::AgreedError; see tokenizer::first_new_id.
std::int64_t find_first_new_id(const comm::Communicator& world, const ModelSettings& settings,
                               const std::filesystem::path& model_folder);

/// Lets `input` begin from the model with its new tokens, in OUTPUT/grown_model: config.json and
/// tokenizer files with them, and embedding and untied head with a row for each, the mean of the
/// rows of all tokens, or of those that model.new_tokens_from names. The other tensors stay where
/// they are (weights::changes_name). Written by the root unless it is there; the same bytes for any
/// number of ranks. Nothing happens without new tokens. Collective on `world`. Throws:
/// comm::AgreedError, ErrorKind::input for a token of new_tokens_from that is not there,
/// ErrorKind::deck if the folder has other new tokens.
void grow_model(const comm::Communicator& world, Input& input);

}  // namespace finetune::train
