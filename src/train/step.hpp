#pragma once
// SPDX-License-Identifier: Apache-2.0
// One optimizer step: micro-batches in, new weights out.

#include <cstdint>

#include "comm/communicator.hpp"
#include "data/stream.hpp"
#include "optim/adamw.hpp"
#include "train/passes.hpp"

namespace finetune::train {

struct StepResult {
  double loss = 0;       ///< mean over the trained tokens of all ranks and micro-batches
  double grad_norm = 0;  ///< of the global gradient, before clipping
};

struct StepSettings {
  std::int64_t step = 0;  ///< counts from 0
  double lr = 0;
  double max_grad_norm = 0;
};

/// Loss and gradient are sums over all trained tokens divided by their exact count, so any split of
/// the global batch into ranks and micro-batches gives the same gradient.
/// Collective on `batch` and on the shards' fsdp. Throws: ErrorKind::numbers on every rank, before
/// weights change, if loss or gradient is not finite.
StepResult run_step(const Engine& engine, const comm::Communicator& batch,
                    const data::StepData& data, optim::AdamW& optimizer,
                    const StepSettings& settings);

}  // namespace finetune::train
