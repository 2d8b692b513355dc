#pragma once
// SPDX-License-Identifier: Apache-2.0
// What a deck leaves to the plan: parallel.sharding = "AUTO", parallel.tp, cp and ep = 0,
// parallel.prefetch and train.micro_batch = "auto", and train.activation_checkpointing = "auto".

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/time/activations.hpp"
#include "plan/time/meshes.hpp"

namespace finetune::plan {

/// Rates of nodes that nobody has measured, to compare strategies with: GPUs are those of
/// inputs/machines/a100-80-8.toml; on the CPU a core without bf16 instructions, shared memory and
/// 25 Gbit/s between nodes. Round numbers on purpose: they rank strategies, and promise no time.
Machine usual_machine(bool on_gpu, std::int64_t cores_per_rank);

/// `machine` with the usual rate wherever it has none that a comparison needs.
Machine with_usual_rates(Machine machine, bool on_gpu, std::int64_t cores_per_rank);

/// Whether the plan is to find the strategy: AUTO, and neither dp_shard nor dp_replicate is set.
bool is_sharding_open(const PlanInput& request);

/// What of tp, cp and ep it may choose: on several ranks what the deck leaves open, and ep only of
/// a model with experts.
OpenAxes sharing_axes(const PlanInput& request, const model::ParameterTable& table);
/// Whether anything is left to it.
bool is_open(const PlanInput& request, const model::ParameterTable& table);
/// Whether parallel.prefetch is.
bool is_prefetch_open(const PlanInput& request);

struct Choice {
  PlanInput request;  ///< with what was chosen
  /// Where ranks share matrices, sequences or experts by choice: what does not fit without that.
  std::optional<Strategy> without_sharing;
  std::vector<Strategy> strategies;  ///< compared, the chosen one first
  std::vector<Strategy> batches;     ///< micro-batches of that one, if they were to be chosen
  std::vector<WayToKeep> ways;       ///< to keep activations, if they were to be chosen
  double prefetch_saves_s = 0;       ///< of a step, where more than one block is gathered ahead
};

/// Settles what `asked` leaves open: the fastest strategy that fits by `compare`, each with the
/// fastest micro-batch and the fastest way to keep activations that fit with it. Matrices,
/// sequences and experts are shared
/// (`compare_meshes`) only where nothing fits otherwise. A tenth of the memory stays free where
/// that is possible, because a plan may be wrong by a few percent. Where the memory is not known
/// (0), everything stays as make_mesh does it, and nothing is recomputed. Where nothing fits, the
/// one that needs least. Throws: ErrorKind::deck if the ranks do not form the mesh.
Choice choose(const PlanInput& asked, const model::ParameterTable& table, const Site& site);

/// What was chosen out of what, and why: a few lines without the last newline. Empty if `asked`
/// left nothing open.
std::string to_string(const Choice& choice, const PlanInput& asked, const Site& site);

}  // namespace finetune::plan
