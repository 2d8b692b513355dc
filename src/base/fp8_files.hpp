#pragma once
// SPDX-License-Identifier: Apache-2.0
// Matrices that a model's files hold in FP8, next to a tensor of their scales: as DeepSeek and
// Transformers ("weight_scale_inv"), compressed-tensors and ModelOpt ("weight_scale") write them.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/parameter_table.hpp"
#include "weights/expected.hpp"
#include "weights/model_files.hpp"

namespace finetune::base {

/// Whether the files have the row's tensor in FP8, whatever config.json says.
bool is_fp8_in(const weights::ModelFiles& files, const model::Parameter& row);

/// The tensor and its scales, with what else programs write: scales of activations, and of caches
/// of keys and values, which nothing here reads.
void add_expected_fp8(const weights::ModelFiles& files, const model::Parameter& row,
                      std::vector<weights::ExpectedTensor>& expected);

/// Elements [first, ...) of a plane (model::planes) of a row that is packed like this.
/// Throws: ErrorKind::input naming what is missing, of another shape or not finite.
void read_fp8_plane(const weights::ModelFiles& files, const model::Parameter& row, int plane,
                    std::int64_t first, std::span<std::byte> target);

/// Elements [first, ...) of a row that the files have in FP8, as the fp32 products of value and
/// scale. There may be a scale for the matrix, for each row, or for each block of 128 x 128; the
/// shape of the scales says which. Throws: as above.
void read_fp8_values(const weights::ModelFiles& files, const model::Parameter& row,
                     std::int64_t first, std::span<float> target);

}  // namespace finetune::base
