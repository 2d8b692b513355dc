#pragma once
// SPDX-License-Identifier: Apache-2.0
// What a GGUF file says of a model's tokenizer and chat templates.

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "gguf/writer.hpp"

namespace finetune::app {

using GgufValues = std::vector<std::pair<std::string, gguf::Value>>;

/// Adds the keys tokenizer.*, of as many tokens as the model has rows. Tokenizers of bytes (BPE
/// after an expression that cuts text) and of pieces (SentencePiece's BPE, with bytes for what it
/// does not know) are said so that llama.cpp finds the same tokens. Throws: ErrorKind::input for
/// others.
void add_gguf_tokenizer(const std::filesystem::path& folder, std::int64_t vocab_size,
                        GgufValues& values);

/// Says that a model cannot be written as GGUF, and what can be done instead.
[[noreturn]] void refuse_gguf(const std::filesystem::path& folder, const std::string& problem,
                              const std::string& why);

}  // namespace finetune::app
