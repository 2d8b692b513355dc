#pragma once
// SPDX-License-Identifier: Apache-2.0
// A sample's text as tokens and labels.

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace finetune::data {

struct Sample;

/// The label of a token that is not trained.
inline constexpr std::int32_t not_trained = -100;

/// Ids and labels of one sequence, of equal size. labels[i] is ids[i] where token i is trained, and
/// not_trained elsewhere; nothing is shifted.
struct Tokens {
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> labels;
};

/// What this folder needs of a tokenizer.
struct Encoder {
  /// Text that begins a sequence, with the tokens the tokenizer puts around it (BOS).
  std::function<std::vector<std::int32_t>(std::string_view)> document;
  /// Text that goes on after other text: no token is added.
  std::function<std::vector<std::int32_t>(std::string_view)> continuation;
  std::int32_t eos_id = 0;
  std::int64_t vocab_size = 0;  ///< the tokenizer's, for messages
};

/// The tokens of the segments one after the other, then the end-of-text token, once. That token is
/// trained if any segment with text is: a model that never sees it trained does not learn to stop.
/// A segment without text trains nothing.
Tokens tokenise(const Sample& sample, const Encoder& encoder);

}  // namespace finetune::data
