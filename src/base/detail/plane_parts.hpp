#pragma once
// SPDX-License-Identifier: Apache-2.0
// Planes of packed tensors that ranks of tensor parallelism hold parts of.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "model/parameter_table.hpp"

namespace finetune::base {

/// Calls f(first element of the logical tensor's plane, elements) for the runs that make up
/// elements [first, first + count) of a rank's own plane, in order. Not for maxima that the rank
/// has no longer nested (`keeps_maxima`). `row` is of a rank's own table.
void for_each_plane_run(const model::Parameter& row, int plane, std::int64_t first,
                        std::int64_t count,
                        const std::function<void(std::int64_t logical, std::int64_t count)>& f);

/// Whether the rank has a packed row's maxima as the logical tensor has them.
bool keeps_maxima(const model::Parameter& row);

/// Whether this rank counts its elements of a plane, of those that have the same.
bool is_counted(const model::Parameter& row, int plane);

/// Elements [first, ...) of a plane of the logical tensor.
using ReadPlane = std::function<void(int plane, std::int64_t first, std::span<std::byte> target)>;

/// Elements [first, ...) of a rank's own plane, of what `logical` reads.
void read_own_plane(const model::Parameter& row, int plane, std::int64_t first,
                    std::span<std::byte> target, const ReadPlane& logical);

}  // namespace finetune::base
