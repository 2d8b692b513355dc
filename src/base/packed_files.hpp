#pragma once
// SPDX-License-Identifier: Apache-2.0
// Tensors that a model's files hold in few bits: GPTQ's, and those that bitsandbytes wrote in NF4;
// and those of the other *_files.hpp here and in detail/: AWQ, FP8, MXFP4, integers row by row,
// NVFP4.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/parameter_table.hpp"
#include "weights/expected.hpp"
#include "weights/model_files.hpp"

namespace finetune::base {

/// The tensors that the files hold of a packed row, with those that programs write in addition.
void add_expected(const weights::ModelFiles& files, const model::Parameter& row,
                  const model::ParameterTable& table,
                  std::vector<weights::ExpectedTensor>& expected);

/// Elements [first, ...) of a plane (model::planes) of a row that is packed in the files; GPTQ's
/// groups may lie there in 64 bits.
/// Throws: ErrorKind::input, also for groups that are not there, for other kinds of NF4, and naming
/// a scale that is not finite.
void read_plane(const weights::ModelFiles& files, const model::Parameter& row, int plane,
                std::int64_t first, std::span<std::byte> target);

/// Codes without what tells how they are to be read: of GPTQ the groups of the inputs (g_idx), of
/// bitsandbytes its quant_state. Throws: ErrorKind::input naming the tensor that is missing.
void require_whole(const weights::ModelFiles& files, const model::ParameterTable& table);

/// bitsandbytes writes what NF4's codes mean next to each tensor: it must be what they mean here.
/// Throws: ErrorKind::input naming a tensor that says something else.
void require_known_levels(const weights::ModelFiles& files, const model::ParameterTable& table);

/// GPTQ's programs write a bias for every matrix: one that the model does not have must be zero.
/// Throws: ErrorKind::input naming one that is not.
void require_zero_biases(const weights::ModelFiles& files, const model::ParameterTable& table);

}  // namespace finetune::base
