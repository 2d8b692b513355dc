#pragma once
// SPDX-License-Identifier: Apache-2.0
// How the matrices of a published model are packed in its files.

#include <string>
#include <vector>

#include "core/json.hpp"
#include "model/parameter_table.hpp"

namespace finetune::model {

struct Quantization {
  Packing packing;                         ///< dense: nothing is packed
  std::vector<std::string> not_converted;  ///< ends of names of modules that are not
};

/// What `config` (config.json) says under "quantization_config"; or, if it says nothing there,
/// `quantize_config` (quantize_config.json, null without such a file). Each is named in messages.
/// Throws: ErrorKind::input for bit widths and methods that are not read, naming what is.
Quantization read_quantization(const core::Json& config, const std::string& where,
                               const core::Json& quantize_config,
                               const std::string& quantize_where);

/// Refuses weights that NVIDIA's ModelOpt quantised, by what it says in hf_quant_config.json: FP8,
/// NVFP4, W4A16_AWQ, ... A cache of keys and values alone may be quantised. `where` is its path.
/// Throws: ErrorKind::input.
void refuse_modelopt(const core::Json& config, const std::string& where);

/// Marks the matrices of blocks as packed in files, and frozen.
/// Throws: ErrorKind::input if one of them cannot be.
void mark_packed(const Quantization& quantization, const std::string& where, ParameterTable& table);

}  // namespace finetune::model
