#pragma once
// SPDX-License-Identifier: Apache-2.0
// Matrices that a model's files hold as integers row by row: of compressed-tensors as words
// (NAME_packed, "pack-quantized") or as bytes (NAME, "int-quantized"), with NAME_scale and
// NAME_zero_point; of bitsandbytes as bytes with the largest magnitudes of rows, MODULE.SCB. And
// those in NVFP4 (NAME_packed, NAME_scale, NAME_global_scale).

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/parameter_table.hpp"
#include "weights/expected.hpp"
#include "weights/model_files.hpp"

namespace finetune::base {

/// The tensors of a row that is packed like this, with those that programs write in addition.
void add_expected_rows(const weights::ModelFiles& files, const model::Parameter& row,
                       std::vector<weights::ExpectedTensor>& expected);

/// Elements [first, ...) of a plane (model::planes) of such a row. Codes and zeros with a sign get
/// half of the codes added; what has one scale in the files has it for each row.
/// Throws: ErrorKind::input naming what is missing, of another shape or not finite.
void read_rows_plane(const weights::ModelFiles& files, const model::Parameter& row, int plane,
                     std::int64_t first, std::span<std::byte> target);

}  // namespace finetune::base
