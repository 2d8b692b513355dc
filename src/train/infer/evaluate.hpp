#pragma once
// SPDX-License-Identifier: Apache-2.0
// Loss and exact match on held-out samples.

#include <cstdint>
#include <functional>
#include <optional>

#include "comm/communicator.hpp"
#include "data/steps/stream.hpp"
#include "train/step/passes.hpp"

namespace finetune::train {

struct Evaluation {
  double loss = 0;         ///< the objective's mean: over all trained tokens
  double exact_match = 0;  ///< part of the samples that are right to the last token
  std::int64_t num_samples = 0;
};

/// Runs all of `stream`'s first epoch forward. `is_left`: asked behind each micro-batch but the
/// last, with the same answer on all ranks; nothing if it says so.
///
/// A sample matches exactly if each of its trained tokens, end of text included, is the model's
/// first choice given those before it. By induction that is the same as greedy generation giving
/// the reference answer, without generating. Collective on `loss_ranks` and on the shards' fsdp
/// and cp.
std::optional<Evaluation> evaluate(const Engine& engine, const comm::Communicator& loss_ranks,
                                   data::Stream& stream,
                                   const std::function<bool()>& is_left = nullptr);

}  // namespace finetune::train
