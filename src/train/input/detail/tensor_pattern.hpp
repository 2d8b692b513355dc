#pragma once
// SPDX-License-Identifier: Apache-2.0
// Tensors of a model by regular expressions for their names.

#include <string>
#include <vector>

#include "core/regex.hpp"
#include "model/parameter_table.hpp"

namespace finetune::train {

/// Looks for its expression anywhere in names such as "model.layers.0.mlp.up_proj.weight".
class TensorPattern {
 public:
  /// `where` begins messages: the deck, and the key. Throws: ErrorKind::input for what is no
  /// expression.
  TensorPattern(std::string text, std::string where);

  bool matches(const model::Parameter& row) const;
  /// Throws: ErrorKind::deck if there are none.
  std::vector<int> rows_in(const model::ParameterTable& table) const;

 private:
  std::string text_;
  std::string where_;
  core::Regex regex_;
};

/// "PATTERN=NUMBER", cut at its last "=". Throws: ErrorKind::deck if there is no number of at least
/// 0 behind it.
struct NumberedPattern {
  TensorPattern pattern;
  double number;
};
NumberedPattern read_numbered_pattern(const std::string& text, const std::string& where);

}  // namespace finetune::train
