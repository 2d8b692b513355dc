#pragma once
// SPDX-License-Identifier: Apache-2.0
// Matrices in AWQ's 4 bits as AutoAWQ writes them ("gemm"): NAME.qweight [in, out / 8], NAME.qzeros
// [groups, out / 8] and NAME.scales [groups, out], kept in the order of GPTQ's (kernels/gptq.hpp).

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/parameter_table.hpp"
#include "weights/expected.hpp"
#include "weights/model_files.hpp"

namespace finetune::base {

/// The three tensors.
void add_expected_awq(const model::Parameter& row, std::vector<weights::ExpectedTensor>& expected);

/// Elements [first, ...) of a plane (model::planes) of a row that is packed like this. Of codes
/// whole words of 8 inputs are read, of the outputs asked for alone where these are few.
/// Throws: ErrorKind::input naming what is missing, of another shape or not finite.
void read_awq_plane(const weights::ModelFiles& files, const model::Parameter& row, int plane,
                    std::int64_t first, std::span<std::byte> target);

}  // namespace finetune::base
