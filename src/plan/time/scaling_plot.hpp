#pragma once
// SPDX-License-Identifier: Apache-2.0
// A drawing of the scaling table.

#include <string>
#include <vector>

#include "plan/time/scaling.hpp"

namespace finetune::plan {

/// An SVG: tokens/s over nodes, both axes in powers, with the ideal line, and the efficiency beside
/// each point. `weak` and `strong` each have a row at least.
std::string plot_scaling(const std::string& title, const std::vector<ScalingRow>& weak,
                         const std::vector<ScalingRow>& strong);

}  // namespace finetune::plan
