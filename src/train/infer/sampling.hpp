#pragma once
// SPDX-License-Identifier: Apache-2.0
// How the next token of a text is chosen.

#include <cstdint>
#include <span>
#include <vector>

namespace finetune::train {

/// In this order, as in Hugging Face's `generate`: penalty, temperature, top-k, top-p, min-p.
struct Sampling {
  double temperature = 0;         ///< 0: always the most likely token
  std::int64_t top_k = 0;         ///< sample from so many of the most likely tokens; 0: from all
  double top_p = 1;               ///< and from the smallest set of them with this probability
  double min_p = 0;               ///< and of these from those with this part of the likeliest's
  double repetition_penalty = 1;  ///< makes tokens that the text has less likely, above 1
  std::uint64_t seed = 0;
  std::int64_t max_tokens = 128;
  std::vector<std::int32_t> stop;  ///< tokens that end the text; not part of it
  /// Ids from here on are never chosen, 0: all may be. An embedding has often more rows than the
  /// tokenizer has tokens.
  std::int64_t vocab_size = 0;
};

/// The token that `sampling` chooses from logits [V] fp32. `index` numbers the choices of a text,
/// `stream` the texts: the choice depends on nothing else. `text`: the tokens so far, for the
/// penalty. Source of top-p: Holtzman et al. 2020 (arXiv 1904.09751); min-p: Nguyen et al. 2024
/// (arXiv 2407.01082); penalty: Keskar et al. 2019 (arXiv 1909.05858).
std::int32_t choose(std::span<const float> logits, const Sampling& sampling, std::uint64_t index,
                    std::uint64_t stream = 0, std::span<const std::int32_t> text = {});

/// log p(token), natural logarithm, of a softmax over the logits.
double log_probability(std::span<const float> logits, std::int32_t token);

}  // namespace finetune::train
