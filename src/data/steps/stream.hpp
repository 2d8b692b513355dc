#pragma once
// SPDX-License-Identifier: Apache-2.0
// What one rank trains on in each step.

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "data/steps/detail/packer.hpp"
#include "data/steps/detail/sampler.hpp"
#include "data/steps/micro_batch.hpp"

namespace finetune::data {

/// A rank's share of one optimizer step, and what all ranks know about the whole of it.
struct StepData {
  /// One entry a micro-step, as many on every rank; empty where this rank has nothing to compute.
  std::vector<std::optional<MicroBatch>> micro_steps;
  // Of the global batch:
  std::int64_t num_sequences = 0;
  std::int64_t num_samples = 0;
  std::int64_t num_tokens = 0;          ///< padding not counted
  std::int64_t num_trained_tokens = 0;  ///< the divisor of its loss
  std::int64_t num_positions = 0;       ///< computed, padding included
  std::int64_t num_padding = 0;         ///< of those

  /// Part of the positions that is padding.
  double padding() const {
    return num_positions == 0
               ? 0
               : static_cast<double>(num_padding) / static_cast<double>(num_positions);
  }
};

/// Steps of training or validation data. Its position is the number of the step: there is nothing
/// to save.
///
/// The sequences of a global batch are cut into micro-batches longest first, those of equal length
/// in the order of their numbers, so that a micro-batch has little padding. Which sequences a
/// micro-batch has does not depend on the number of ranks.
class Stream {
 public:
  Stream(Sequences sequences, Sampler sampler, MicroBatchGrid grid, std::int64_t pad_id,
         SampleTexts texts = SampleTexts::one)
      : sequences_(std::move(sequences)),
        sampler_(std::move(sampler)),
        grid_(grid),
        pad_id_(pad_id),
        texts_(texts) {}

  const Sequences& sequences() const { return sequences_; }
  const Dataset& dataset() const { return sequences_.dataset(); }
  const Sampler& sampler() const { return sampler_; }
  const MicroBatchGrid& grid() const { return grid_; }

  /// The data of optimizer step `step` >= 0. No communication. Reads tokens of this rank's samples
  /// only.
  StepData step(std::int64_t step) const;

  /// The counts of step `step`, without its micro-batches: no token is read.
  StepData counts(std::int64_t step) const;

 private:
  std::vector<std::int64_t> batch(std::int64_t step) const;
  StepData count(const std::vector<std::int64_t>& batch) const;

  Sequences sequences_;
  Sampler sampler_;
  MicroBatchGrid grid_;
  std::int64_t pad_id_;
  SampleTexts texts_;
};

}  // namespace finetune::data
