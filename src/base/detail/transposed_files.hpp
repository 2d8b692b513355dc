#pragma once
// SPDX-License-Identifier: Apache-2.0
// Matrices that a model's files have as [in, out] (Parameter::is_by_inputs).

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/parameter_table.hpp"
#include "weights/model_files.hpp"

namespace finetune::base {

/// The shape that a row has in dense files.
std::vector<std::int64_t> shape_in_files(const model::Parameter& row);

/// Reads such rows in the order of memory. Keeps the last one whole, in fp32: runs of it follow
/// each other. One thread at a time.
class TransposedReader {
 public:
  /// `files` outlives it.
  explicit TransposedReader(const weights::ModelFiles& files) : files_(files) {}

  /// Elements [first, ...) of the row [out, in]. Throws: what ModelFiles::read throws.
  void read(const model::Parameter& row, std::int64_t first, std::span<float> target);

 private:
  const weights::ModelFiles& files_;
  std::string name_;
  std::vector<float> values_;  ///< [in, out]
};

}  // namespace finetune::base
