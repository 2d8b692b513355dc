#pragma once
// SPDX-License-Identifier: Apache-2.0
// How long ranks may wait for each other in `finetune check` before the late one is named and the
// job ends: a check is to find a hanging rank soon, and not to take a starting one for it.

namespace finetune::preflight {

struct PatienceInput {
  double hang_timeout_s = 0;  ///< of the deck; 0: training is not watched
  bool has_gpus = false;      ///< some node of the job has any
  bool saves = false;         ///< rates are measured for a file
};

struct Patience {
  double connecting_s = 0;  ///< until devices are there and their ranks connected; 0: not watched
  double measuring_s = 0;   ///< from then on, always watched
};

/// Before the deck is read.
double first_patience_s(bool has_gpus);

Patience patience_of(const PatienceInput& input);

}  // namespace finetune::preflight
