#pragma once
// SPDX-License-Identifier: Apache-2.0
// What is gathered and reduced together: parallel.bucket.

#include <cstdint>

#include "model/parameter_table.hpp"
#include "plan/layout/settings.hpp"

namespace finetune::plan {

enum class ExpertUnits { with_their_block, apart };
constexpr ExpertUnits units_of_experts(std::int64_t ep) {
  return ep > 1 ? ExpertUnits::apart : ExpertUnits::with_their_block;
}

/// `table` with the units of `bucket`: `block` leaves those of the model family, `layer` makes one
/// of each part of a unit (a block's attention and its feed-forward), `whole` one of the whole
/// model. Units with trained and frozen rows are cut into one of each kind, and the unit of the
/// adapters stays as it is. Rows keep their order, so what is read as one matrix stays together.
/// `apart`: where ranks share experts out, these get units of their own.
model::ParameterTable regroup(model::ParameterTable table, Bucket bucket,
                              ExpertUnits experts = ExpertUnits::with_their_block);

}  // namespace finetune::plan
