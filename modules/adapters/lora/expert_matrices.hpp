#pragma once
// SPDX-License-Identifier: Apache-2.0
// The matrices of a layer's experts as one parameter, which PEFT's target_parameters names.

#include <cstdint>
#include <string>
#include <vector>

#include "adapters/lora/sizes.hpp"
#include "model/adapter.hpp"
#include "model/parameter_table.hpp"

namespace finetune::adapters::lora {

/// [num, out, in], of which the table has one row, or one or two per expert.
struct ExpertMatrices {
  std::string module;     ///< as transformers calls it, such as model.layers.0.mlp.experts
  std::string parameter;  ///< "gate_up_proj", of experts without a gate "up_proj"; or "down_proj"
  std::int64_t num = 0;
  /// As PEFT reads the tensor: what A has, and what B has.
  std::int64_t num_inputs = 0;
  std::int64_t num_outputs = 0;
  bool of_transpose = false;  ///< that is the other way round than its products
  bool is_by_inputs = false;  ///< one row has all, [num, in, out]
  /// First row of the first expert, rows per expert, from an expert's to the next one's (0: one row
  /// has all).
  int first = 0;
  int rows_of_one = 1;
  int stride = 0;

  std::string name() const { return module + "." + parameter; }
};

/// Those of all layers that settings.target_parameters name by their ends, as in PEFT. Throws:
/// ErrorKind::deck for a name that means none, if `where` is not empty.
std::vector<ExpertMatrices> named_experts(const std::vector<std::string>& target_parameters,
                                          const std::string& where,
                                          const model::ParameterTable& table);

/// Puts A [num r, in] and B [out, r num] on top of each, in the table's last unit.
void add_to_experts(const std::vector<ExpertMatrices>& all, const LowRankSizes& sizes,
                    model::ParameterTable& table);

}  // namespace finetune::adapters::lora
