#pragma once
// SPDX-License-Identifier: Apache-2.0
// What is gathered and reduced together: parallel.bucket.

#include <cstdint>

#include "model/parameter_table.hpp"
#include "plan/layout/settings.hpp"

namespace finetune::plan {

/// `table` with the units of `bucket`: `block` leaves those of the model family, `layer` makes one
/// of each part of a unit (a block's attention and its feed-forward), `whole` one of the whole
/// model. Units with trained and frozen rows are cut into one of each kind, and the unit of the
/// adapters stays as it is. Where ranks share experts out (ep > 1), so are units with rows of
/// experts and others. Rows keep their order, so what is read as one matrix stays together.
model::ParameterTable regroup(model::ParameterTable table, Bucket bucket, std::int64_t ep = 1);

}  // namespace finetune::plan
