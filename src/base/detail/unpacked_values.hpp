#pragma once
// SPDX-License-Identifier: Apache-2.0
// The numbers that packed matrices stand for, out of files or out of their planes.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/parameter_table.hpp"
#include "weights/model_files.hpp"

namespace finetune::base {

/// The row as its files have it: packed like them where it is unpacked as it is read.
model::Parameter as_in_files(const model::Parameter& row);

/// The bytes of each plane of `row` (model::planes) -> its numbers in fp32, row-major.
std::vector<float> numbers_of_planes(const model::Parameter& row,
                                     std::span<const std::vector<std::byte>> planes);

/// Elements [first, ...) of a logical matrix that files have packed (model::Parameter::of_files),
/// as fp32. Memory: a few MiB, or the rows of one word of codes.
/// Throws: ErrorKind::input as read_plane.
void read_unpacked(const weights::ModelFiles& files, const model::Parameter& row,
                   std::int64_t first, std::span<float> target);

}  // namespace finetune::base
