#pragma once
// SPDX-License-Identifier: Apache-2.0
// What config.json says of weights that compressed-tensors wrote.

#include "model/detail/settings_reader.hpp"
#include "model/quantization.hpp"

namespace finetune::model {

/// quant_method "compressed-tensors": one group of all linear layers in FP8, in NVFP4 or as
/// integers of 4 or 8 bits. What is said of activations is not read.
/// Throws: ErrorKind::input for all else, naming the key.
Quantization read_compressed_tensors(const SettingsReader& reader);

}  // namespace finetune::model
