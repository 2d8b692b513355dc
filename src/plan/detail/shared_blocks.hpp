#pragma once
// SPDX-License-Identifier: Apache-2.0
// Blocks of quantised moments, where ranks of tensor parallelism hold the same elements.

#include <cstdint>
#include <string>

#include "model/parameter_table.hpp"
#include "plan/layout/mesh.hpp"
#include "plan/layout/settings.hpp"

namespace finetune::plan {

/// The first trained row that several ranks of tp hold, and whose moments would share a block of
/// `block` neighbours with other elements on one of these ranks than on another: their scales, and
/// so the moments and at last the weights, would differ. Empty: there is none. `table` is the
/// model's.
std::string row_in_unequal_blocks(const Mesh& mesh, const model::ParameterTable& table,
                                  Bucket bucket, std::int64_t block);

}  // namespace finetune::plan
