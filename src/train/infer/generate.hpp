#pragma once
// SPDX-License-Identifier: Apache-2.0
// Text from a model, token by token, with a cache of keys and values.

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "train/infer/sampling.hpp"
#include "train/step/passes.hpp"

namespace finetune::train {

/// A text that is to be continued.
struct TextRequest {
  std::int64_t id = 0;  ///< which random numbers are its own
  std::vector<std::int32_t> prompt = {};
  Sampling sampling = {};
  /// Whether the new tokens end here, beside `sampling.stop`: they stay. None: they do not.
  std::function<bool(std::span<const std::int32_t>)> is_complete = {};
};

struct GeneratedText {
  std::vector<std::int32_t> tokens = {};  ///< the new ones
  std::vector<float> log_probs = {};      ///< of each, by the model alone: without any sampling
  bool is_complete = false;               ///< it ended before it was too long
};

struct GenerateOptions {
  std::int64_t batch = 16;            ///< texts that a rank computes at once
  std::int64_t prompt_tokens = 4096;  ///< of prompts that begin at once, unless it is only one
  bool wants_log_probs = false;
  /// Sees each new token of a text as it comes: the text's place in `requests`.
  std::function<void(std::size_t, std::int32_t)> on_token = {};
  /// A text is whole.
  std::function<void(std::size_t, const GeneratedText&)> on_text = {};
  /// All ranks have the same requests, and follow the first one's choices: ranks with other
  /// processors may round a near tie otherwise.
  bool same_on_all_ranks = false;
  /// Asked between two tokens, on all ranks: true on any ends it, and what is not whole is dropped.
  std::function<bool()> should_stop = {};
};

/// Continues texts, each rank its own ones (perhaps none), until all are whole: in the order of
/// `requests`, and what each becomes depends neither on the others nor on the rank: on a CPU to the
/// last bit (model::FewRows), but with experts, and otherwise but for how products round. Stops at
/// the model's last position. Collective on fsdp; ranks of tp pass the same. Throws: ErrorKind::bug
/// for a prompt without tokens.
std::vector<GeneratedText> generate_texts(const Engine& engine,
                                          std::span<const TextRequest> requests,
                                          const GenerateOptions& options = {});

/// Continues `prompt` (at least one token) and returns the new tokens. `on_token`, if there is one,
/// sees each as it comes. Collective on fsdp: every rank passes the same and gets the same.
std::vector<std::int32_t> generate(const Engine& engine, std::span<const std::int32_t> prompt,
                                   const Sampling& sampling,
                                   const std::function<void(std::int32_t)>& on_token = {});

}  // namespace finetune::train
