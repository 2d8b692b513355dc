#pragma once
// SPDX-License-Identifier: Apache-2.0
// How the matrices of a published model are packed in its files.

#include <string>
#include <vector>

#include "core/json.hpp"
#include "core/regex.hpp"
#include "model/parameter_table.hpp"

namespace finetune::model {

struct Quantization {
  Packing packing;                                       ///< dense: nothing is packed
  std::vector<std::string> not_converted = {};           ///< parts of names of modules that are not
  std::vector<core::Regex> not_converted_patterns = {};  ///< the same, of the beginning of names
};

/// What `config` (config.json) says under "quantization_config"; or, if it says nothing there,
/// `quantize_config` (quantize_config.json, null without such a file). Each is named in messages.
/// Throws: ErrorKind::input for bit widths and methods that are not read, naming what is.
Quantization read_quantization(const core::Json& config, const std::string& where,
                               const core::Json& quantize_config,
                               const std::string& quantize_where);

/// What NVIDIA's ModelOpt says in hf_quant_config.json, whose path `where` is: FP8 and NVFP4 are
/// read, W4A16_AWQ and others are not. A cache of keys and values alone may be quantised: dense.
/// Throws: ErrorKind::input.
Quantization read_modelopt(const core::Json& config, const std::string& where);

/// Marks the matrices of blocks as packed in files, and frozen.
/// Throws: ErrorKind::input if one of them cannot be.
void mark_packed(const Quantization& quantization, const std::string& where, ParameterTable& table);

}  // namespace finetune::model
