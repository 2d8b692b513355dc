#pragma once
// SPDX-License-Identifier: Apache-2.0
// The global gradient norm, over shards, and what clipping makes of it.

#include "shard/model_shards.hpp"

namespace finetune::optim {

/// Euclidean norm of all gradients of the model. On the CPU, and everywhere if gradients are
/// summed in fixed point, it is summed exactly, so that it does not depend on how the elements are
/// split over ranks and threads; NaN if a gradient is not finite or beyond 2^38. Collective on the
/// shards' fsdp and dp_replicate.
double gradient_norm(shard::ModelShards& shards);

/// Factor that brings a norm down to `max_norm`: min(1, max_norm / (norm + 1e-6)), 1 if `max_norm`
/// is 0. Source: torch.nn.utils.clip_grad_norm_.
double clip_factor(double norm, double max_norm);

}  // namespace finetune::optim
