#pragma once
// SPDX-License-Identifier: Apache-2.0
// What was measured, as the table [machine] that `finetune plan --machine` reads.

#include <span>
#include <string>

#include "plan/layout/axes.hpp"
#include "plan/machine/machine.hpp"
#include "preflight/detail/facts.hpp"
#include "preflight/detail/links.hpp"
#include "preflight/detail/rates.hpp"

namespace finetune::preflight {

/// What sweeps are called of ranks inside nodes, and of those of the same place on all nodes.
namespace levels {
inline constexpr const char* node = "node";
inline constexpr const char* nodes = "nodes";
}  // namespace levels

/// Medians over ranks and nodes; 0 for what could not be measured, as links between nodes in a job
/// on one.
plan::Machine machine_of(const JobFacts& job, std::span<const Link> links,
                         std::span<const Sweep> sweeps);

/// `machine` as the table [machine] of a TOML file.
std::string to_toml(const plan::Machine& machine);

}  // namespace finetune::preflight
