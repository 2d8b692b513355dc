#pragma once
// SPDX-License-Identifier: Apache-2.0
// One tensor of a base at a time, by one process: quantised, or as the numbers that its 4 bits
// mean. For exports; a run has `load_frozen`, which gives identical bits.

#include <cstdint>
#include <span>
#include <vector>

#include "base/detail/quantise.hpp"
#include "model/parameter_table.hpp"
#include "weights/model_files.hpp"

namespace finetune::base {

/// A tensor in NF4.
struct Nf4Tensor {
  std::vector<std::uint8_t> codes;
  std::vector<float> maxima;               ///< not nested
  std::vector<std::uint8_t> maxima_codes;  ///< nested, as what follows
  std::vector<float> nested_maxima;
  float offset = 0;
};

/// Memory: the result and a few MiB. Throws: ErrorKind::input naming a row whose values are not
/// finite; what `values` throws.
Nf4Tensor quantise(const model::Parameter& row, const ReadValues& values);

/// A row of the base as fp32, whole: as in the files, or what the bits mean that a run has of it.
std::vector<float> base_weight(const weights::ModelFiles& files, const model::Parameter& row);

/// The values of a row that is not packed in the files.
ReadValues values_in(const weights::ModelFiles& files, const model::Parameter& row);

}  // namespace finetune::base
