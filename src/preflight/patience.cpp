// SPDX-License-Identifier: Apache-2.0
#include "preflight/patience.hpp"

#include <algorithm>

namespace finetune::preflight {
namespace {

// Longer than ranks wait for each other where nothing is slow to start.
constexpr double usual_s = 20;
// With a file to write they measure more between two collectives.
constexpr double saving_s = 60;
// Drivers that unload when nobody uses them take seconds per GPU to come back, and NVML is asked
// about all of a node's by one of its ranks.
constexpr double waking_s = 300;

}  // namespace

double first_patience_s(bool has_gpus) {
  return has_gpus ? waking_s : usual_s;
}

Patience patience_of(const PatienceInput& input) {
  // A deck may ask for less, but a check is watched even if training is not to be.
  const double most_s = input.saves ? saving_s : usual_s;
  const double measuring_s =
      input.hang_timeout_s > 0 ? std::min(input.hang_timeout_s, most_s) : most_s;
  // Contexts of GPUs and their connections begin minutes apart on a large job: until they are
  // there, nobody is late who is not so late that training would end.
  return {.connecting_s = input.has_gpus ? input.hang_timeout_s : measuring_s,
          .measuring_s = measuring_s};
}

}  // namespace finetune::preflight
