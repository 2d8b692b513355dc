#pragma once
// SPDX-License-Identifier: Apache-2.0
// How the CPUs of a job multiply: by their own instructions for a narrow float, or in fp32.

#include <cstdint>
#include <string>

#include "comm/communicator.hpp"
#include "plan/layout/numbers.hpp"

namespace finetune::train {

/// What the ranks of a job compute with.
struct Arithmetic {
  bool widens = false;       ///< plan::Numbers::widens
  std::int64_t threads = 1;  ///< of the rank that has most
};

/// Whether products of `numbers.compute` are computed in fp32 on the CPU. `asked` is the deck's
/// precision.cpu_products, `is_needed` whether this rank's processor has no instructions for them.
/// "auto": where nodes differ, all ranks do what the oldest processor needs. Logs what was chosen.
/// Collective on `world`.
bool choose_widening(const comm::Communicator& world, plan::CpuProducts asked,
                     const plan::Numbers& numbers, bool is_needed);

/// What this process would compute with, were it alone.
Arithmetic own_arithmetic(plan::CpuProducts asked, const plan::Numbers& numbers);

/// What all ranks compute with; logs how they multiply, and warns where the deck asks for what
/// processors are slow at. Collective on `world`.
Arithmetic agree_on_arithmetic(const comm::Communicator& world, plan::CpuProducts asked,
                               const plan::Numbers& numbers, bool on_gpu);

/// What checkpoints say of it: a restart that multiplies otherwise gives other bits.
std::string describe_arithmetic(const plan::Numbers& numbers, bool on_gpu);

}  // namespace finetune::train
