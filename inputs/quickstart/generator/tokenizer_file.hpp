#pragma once
// SPDX-License-Identifier: Apache-2.0
// The small JSON files of the base model's folder, in Hugging Face form.

#include <string>

#include "generator/merges.hpp"

namespace finetune::quickstart {

/// tokenizer.json: byte-level BPE with Llama 3's split pattern and two special tokens behind the
/// learned ones.
std::string tokenizer_json(const Merges& merges);

/// tokenizer_config.json: which tokens begin and end a text.
std::string tokenizer_config_json();

/// config.json of a Llama with `vocab_size` tokens.
std::string model_config_json(std::size_t vocab_size);

/// Tokens that `tokenizer_json` adds to the learned ones.
inline constexpr std::size_t num_special_tokens = 2;

}  // namespace finetune::quickstart
