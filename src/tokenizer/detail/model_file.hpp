#pragma once
// SPDX-License-Identifier: Apache-2.0
// Which file of a model folder holds its tokenizer.

#include <filesystem>

namespace finetune::tokenizer {

/// The first that is there of: tokenizer.json, tekken.json, *.tiktoken, tokenizer.model,
/// tokenizer.model.v3 and the like.
/// Throws: ErrorKind::input if there is none, with what was looked for.
std::filesystem::path find_tokenizer(const std::filesystem::path& model_folder);

}  // namespace finetune::tokenizer
