#pragma once
// SPDX-License-Identifier: Apache-2.0
// Where this rank computes.

#include <ATen/ATen.h>

#include "comm/device.hpp"
#include "comm/environment.hpp"
#include "plan/layout/numbers.hpp"

namespace finetune::train {

/// Gives every rank a GPU of its own, or all of them the CPU where there is none; prepares libtorch
/// for it and says in the log which rank has which. Collective on the environment's world.
/// Throws: AgreedError of ErrorKind::environment.
comm::Device prepare_device(const comm::Environment& environment, const plan::Numbers& numbers);

at::Device to_aten(const comm::Device& device);

}  // namespace finetune::train
