#pragma once
// SPDX-License-Identifier: Apache-2.0
// Where this rank computes.

#include <ATen/ATen.h>

#include "comm/device.hpp"
#include "comm/environment.hpp"
#include "comm/nccl/nccl_settings.hpp"
#include "plan/layout/numbers.hpp"
#include "train/input/input.hpp"

namespace finetune::train {

/// Gives every rank a GPU of its own, or all of them the CPU where there is none (as `asked`);
/// prepares libtorch for it and says in the log what computes. Collective on the environment's
/// world. Throws: AgreedError of ErrorKind::environment.
comm::Device prepare_device(const comm::Environment& environment, const plan::Numbers& numbers,
                            comm::UseOfGpus asked, const NcclTable& nccl);

/// What NCCL is told: the deck's variables, and that sums keep their order where runs are to
/// repeat.
comm::NcclSettings nccl_settings(const Input& input);

}  // namespace finetune::train
