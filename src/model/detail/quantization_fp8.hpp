#pragma once
// SPDX-License-Identifier: Apache-2.0
// What config.json and hf_quant_config.json say of weights in FP8, by the programs that wrote it.

#include "model/detail/settings_reader.hpp"
#include "model/quantization.hpp"

namespace finetune::model {

/// quant_method "fp8" of Transformers, DeepSeek and AutoFP8: a scale per matrix, or per block where
/// "weight_block_size" says so. Throws: ErrorKind::input for other formats and sizes of blocks.
Quantization read_fp8(const SettingsReader& reader);

/// The "weights" of a group of compressed-tensors in FP8, with a scale per matrix, row or block.
/// Throws: ErrorKind::input for all else, naming the key.
Packing read_compressed_fp8(const SettingsReader& weights);

/// What NVIDIA's ModelOpt says: "quant_algo" FP8 has a scale per matrix; without one the weights
/// are as they were. `excluded` is the key of the modules that are not converted.
/// Throws: ErrorKind::input for other algorithms.
Quantization read_modelopt(const SettingsReader& reader, const char* excluded);

}  // namespace finetune::model
