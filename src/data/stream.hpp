#pragma once
// SPDX-License-Identifier: Apache-2.0
// What one rank trains on in each step.

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "data/micro_batch.hpp"
#include "data/sampler.hpp"

namespace finetune::data {

/// A rank's share of one optimizer step, and what all ranks know about the whole of it.
struct StepData {
  /// One entry a micro-step, as many on every rank; empty where this rank has nothing to compute.
  std::vector<std::optional<MicroBatch>> micro_steps;
  std::int64_t num_samples = 0;         ///< of the global batch
  std::int64_t num_tokens = 0;          ///< of the global batch, padding not counted
  std::int64_t num_trained_tokens = 0;  ///< of the global batch: the divisor of its loss
};

/// Steps of training or validation data. Its position is the number of the step: there is nothing
/// to save.
class Stream {
 public:
  Stream(Dataset dataset, Sampler sampler, MicroBatchGrid grid, std::int64_t pad_id)
      : dataset_(std::move(dataset)), sampler_(std::move(sampler)), grid_(grid), pad_id_(pad_id) {}

  const Dataset& dataset() const { return dataset_; }
  const Sampler& sampler() const { return sampler_; }
  const MicroBatchGrid& grid() const { return grid_; }

  /// The data of optimizer step `step` >= 0. No communication.
  StepData step(std::int64_t step);

 private:
  Dataset dataset_;
  Sampler sampler_;
  MicroBatchGrid grid_;
  std::int64_t pad_id_;
};

}  // namespace finetune::data
