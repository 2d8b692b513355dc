#pragma once
// SPDX-License-Identifier: Apache-2.0
// A model's tokenizer with more tokens, in the files that transformers reads.

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace finetune::tokenizer {

/// Tokens that a tokenizer is given. They are found in text as they are written. Special ones are
/// left out of decoded text on request, and are ordinary text in data of unknown origin.
struct NewTokens {
  std::vector<std::string> plain;
  std::vector<std::string> special;

  bool any() const { return !plain.empty() || !special.empty(); }
  std::int64_t count() const { return std::ssize(plain) + std::ssize(special); }
};

/// Id of the first of them: they follow all ids that there are. Throws: ErrorKind::input for a
/// folder whose tokenizer is not a tokenizer.json, and for a token that is there already.
std::int64_t first_new_id(const std::filesystem::path& model_folder, const NewTokens& tokens);

/// The tokenizer's files of `model_folder` that name tokens, by name, with the new ones in them,
/// the plain ones first, as `add_tokens` of transformers numbers and writes them. Throws: as
/// first_new_id.
std::map<std::string, std::string> texts_with(const std::filesystem::path& model_folder,
                                              const NewTokens& tokens);

}  // namespace finetune::tokenizer
