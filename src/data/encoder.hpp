#pragma once
// SPDX-License-Identifier: Apache-2.0
// The tokenizer as the rest of data sees it. Only who includes this links finetune::tokenizer.

#include <utility>

#include "data/tokenizer.hpp"
#include "data/tokens.hpp"

namespace finetune::data {

/// Names of special tokens inside a sample become those tokens, as in the Hugging Face libraries.
/// Throws: ErrorKind::input if the model folder names no end token.
inline Encoder encoder_of(const Tokenizer& tokenizer) {
  const auto encode_as = [&](Encode options) {
    return [tokenizer, options](std::string_view text) { return tokenizer.encode(text, options); };
  };
  return {encode_as(Encode::document), encode_as(Encode::continuation), tokenizer.eos_id(),
          tokenizer.vocab_size()};
}

/// A text for the model to go on from: as a document, but without an end token that the tokenizer's
/// post-processor may have put behind it. Training begins its samples in the same way.
inline std::vector<std::int32_t> encode_prompt(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<std::int32_t> ids = tokenizer.encode(text, Encode::document);
  if (!ids.empty() && ids.back() == tokenizer.eos_id()) ids.pop_back();
  return ids;
}

}  // namespace finetune::data
