#pragma once
// SPDX-License-Identifier: Apache-2.0
// Every parameter of a model, one row each. Shards, checkpoint layout, memory plan and weight files
// all follow from this table alone.

#include <cstdint>
#include <string>
#include <vector>

#include "core/tensor_slice.hpp"

namespace finetune::model {

enum class Init { normal, ones, zeros };

struct Parameter {
  std::string name;                 ///< as in the Hugging Face file
  std::vector<std::int64_t> shape;  ///< of the logical tensor
  int unit = 0;                     ///< index into ParameterTable::units
  int part = 0;  ///< of the unit, where parallel.bucket = "LAYER" may split it: rows that are read
                 ///< as one matrix have the same
  bool trainable = true;
  bool decayed = true;  ///< weight decay applies (tensors of two and more dims)
  Init init = Init::normal;

  std::int64_t count() const { return core::num_elements(shape); }
};

struct ParameterTable {
  std::vector<Parameter> rows;
  std::vector<std::string> units;  ///< what is gathered together, in the order of the forward pass
  /// Beginnings of names of tensors in the files that are of other parts of the model: not read.
  std::vector<std::string> foreign = {};

  std::int64_t num_parameters() const {
    std::int64_t sum = 0;
    for (const Parameter& row : rows)
      sum += row.count();
    return sum;
  }
};

/// Rows [first, first + num): neighbours that one product may read as a single matrix, such as the
/// projections to queries, keys and values.
struct RowRange {
  int first = 0;
  int num = 1;
};

}  // namespace finetune::model
