// SPDX-License-Identifier: Apache-2.0
#include "plan/settings.hpp"

namespace finetune::plan {

void ParallelSettings::bind(deck::Table& table) {
  table.choice(
      {.name = "sharding",
       .restart = deck::Restart::free,
       .sentence =
           "FULL_SHARD: weights, gradients and optimizer state are split over all ranks; a block's "
           "weights are gathered just before use."},
      sharding, {"FULL_SHARD"});
}

void PrecisionSettings::bind(deck::Table& table) {
  table.choice(
      {.name = "mode",
       .restart = deck::Restart::fixed,
       .sentence =
           "bf16-mixed: bfloat16 products with fp32 master weights, moments and gradient sums; "
           "32-true: everything in fp32."},
      mode, {"bf16-mixed", "32-true"});
}

}  // namespace finetune::plan
