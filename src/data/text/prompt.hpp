#pragma once
// SPDX-License-Identifier: Apache-2.0
// Prompts as the model is given them.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "data/text/tokenise.hpp"
#include "tokenizer/tokenizer.hpp"

namespace finetune::data {

/// A text for the model to continue: as a document, but without an end token that the tokenizer's
/// post-processor may have put behind it, and with the begin token that the text has itself once.
/// Training begins its samples in the same way.
inline std::vector<std::int32_t> encode_prompt(const tokenizer::Tokenizer& tokenizer,
                                               std::string_view text) {
  const tokenizer::TextPart part{text};
  std::vector<std::int32_t> ids = encode_document(std::span(&part, 1), tokenizer);
  if (!ids.empty() && ids.back() == tokenizer.eos_id()) ids.pop_back();
  return ids;
}

}  // namespace finetune::data
