#pragma once
// SPDX-License-Identifier: Apache-2.0
// How the CPUs of a job multiply: by their own instructions for a narrow float, or in fp32.

#include <string>

#include "comm/communicator.hpp"
#include "plan/numbers.hpp"

namespace finetune::train {

/// Whether products of `numbers.compute` are computed in fp32 on the CPU. `asked` is the deck's
/// precision.cpu_products, `is_needed` whether this rank's processor has no instructions for them.
/// "auto": where nodes differ, all ranks do what the oldest processor needs. Logs what was chosen.
/// Collective on `world`.
bool choose_widening(const comm::Communicator& world, const std::string& asked,
                     const plan::Numbers& numbers, bool is_needed);

/// What checkpoints say of it: a restart that multiplies otherwise gives other bits.
std::string describe_arithmetic(const plan::Numbers& numbers, bool on_gpu);

}  // namespace finetune::train
