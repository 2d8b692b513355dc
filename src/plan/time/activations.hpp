#pragma once
// SPDX-License-Identifier: Apache-2.0
// Ways to keep activations until the backward pass, side by side: what each needs, and how long a
// step takes with it.

#include <cstdint>
#include <string>
#include <vector>

#include "plan/time/strategies.hpp"

namespace finetune::plan {

/// One of them, for the strategy of a plan.
struct WayToKeep {
  ActivationCheckpointing mode = ActivationCheckpointing::none;
  std::int64_t recomputed_blocks = 0;  ///< whole, in addition
  std::int64_t offloaded_blocks = 0;   ///< of the others
  std::int64_t memory_bytes = 0;
  std::int64_t host_bytes = 0;
  double step_s = 0;
  bool fits = false;  ///< comfortably

  bool is_of(const PlanInput& request) const;
};

/// What `request` says, without what it needs.
WayToKeep way_of(const PlanInput& request);

/// Nothing recomputed, norms and activation functions, and whole blocks: of the first two also with
/// the fewest whole blocks with which they fit, if there are such, and on GPUs with the fewest
/// offloaded, and with the fastest of some mixtures of both. `request` says everything else.
std::vector<WayToKeep> ways_to_keep(const PlanInput& request, const model::ParameterTable& table,
                                    const Site& site);

/// `request` with the fastest way that fits comfortably; with whole blocks where none does, and as
/// it is where it chooses nothing. Activations are offloaded only where that is clearly faster than
/// all else that fits. Where the memory is not known nothing is recomputed.
PlanInput with_activations(const PlanInput& request, const model::ParameterTable& table,
                           const Site& site);

/// As the deck writes it: "none", "selective" or "full".
std::string to_string(ActivationCheckpointing mode);

/// "selective", or with whole blocks "selective, 12 of 32 blocks whole", or "none, 8 offloaded".
std::string describe_recomputation(const WayToKeep& way, std::int64_t num_blocks);

}  // namespace finetune::plan
