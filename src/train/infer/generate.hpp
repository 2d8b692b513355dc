#pragma once
// SPDX-License-Identifier: Apache-2.0
// Text from a model, token by token, with a cache of keys and values.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "train/step/passes.hpp"

namespace finetune::train {

struct Sampling {
  double temperature = 0;  ///< 0: always the most likely token
  double top_p = 1;        ///< sample from the smallest set of tokens with this probability
  std::uint64_t seed = 0;
  std::int64_t max_tokens = 128;
  std::vector<std::int32_t> stop;  ///< tokens that end the text; not part of it
  /// Ids from here on are never chosen, 0: all may be. An embedding has often more rows than the
  /// tokenizer has tokens.
  std::int64_t vocab_size = 0;
};

/// Continues `prompt` (at least one token) and returns the new tokens. `on_token`, if there is one,
/// sees each as it comes. Stops at the model's last position.
/// Collective on the shards' fsdp: every rank passes the same and gets the same.
std::vector<std::int32_t> generate(const Engine& engine, std::span<const std::int32_t> prompt,
                                   const Sampling& sampling,
                                   const std::function<void(std::int32_t)>& on_token = {});

/// The token that `sampling` chooses from logits [V] fp32; `index` numbers the choices of a text.
/// Source of top-p: Holtzman et al. 2020 (arXiv 1904.09751).
std::int32_t choose(std::span<const float> logits, const Sampling& sampling, std::uint64_t index);

}  // namespace finetune::train
