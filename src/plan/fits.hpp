#pragma once
// SPDX-License-Identifier: Apache-2.0
// Whether a run fits into memory, and what to change if it does not.

#include <cstdint>
#include <string>
#include <vector>

#include "plan/plan.hpp"

namespace finetune::plan {

/// A change of the deck or the job that lets this run need less memory a rank.
struct Remedy {
  std::string change;      ///< "train.micro_batch = 2"
  std::int64_t bytes = 0;  ///< what a rank then needs
  std::int64_t saved_bytes = 0;
};

/// The cheapest remedies, three at most: of those that make the run fit into `available_bytes`
/// before those that do not, the ones that cost least time and change the result least. Listed by
/// the bytes they save, most first. Each is planned for this run; what saves less than 1 % (of a
/// GPU: of its tensors) is left out.
std::vector<Remedy> remedies(const PlanInput& request, const model::ParameterTable& table,
                             std::int64_t available_bytes);

/// The remedies as a sentence for a user.
std::string remedy_sentence(const PlanInput& request, const model::ParameterTable& table,
                            std::int64_t available_bytes);

/// What a rank may use: parallel.memory_gib if it is set, else `there_bytes`.
std::int64_t available_bytes(const PlanInput& request, std::int64_t there_bytes);

/// What each of `ranks_on_node` processes that start together may take of this node's memory, what
/// this one has already taken included.
std::int64_t share_of_node(std::int64_t ranks_on_node);

/// Refuses a run that needs more memory a rank than `available_bytes`.
/// Throws: ErrorKind::environment naming what is needed, what is there, and the remedies.
void require_fits(const Plan& plan, const PlanInput& request, const model::ParameterTable& table,
                  std::int64_t available_bytes);

/// Refuses a run on GPUs that needs more of the host's memory a rank than `available_bytes`.
/// Throws: ErrorKind::environment.
void require_host_fits(const Plan& plan, const PlanInput& request, std::int64_t available_bytes);

}  // namespace finetune::plan
