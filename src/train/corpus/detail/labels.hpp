#pragma once
// SPDX-License-Identifier: Apache-2.0
// Labels of texts, as the data have them and as a head learns them.

#include <string>
#include <vector>

#include "data/text/text_source.hpp"
#include "data/tokens/load.hpp"
#include "model/outputs.hpp"

namespace finetune::train {

/// Of a head that is not for the next token. A label is a name of `names` or its number; of several
/// that are right a list of these; of a regression a number.
data::LabelCoder label_coder(const model::Outputs& outputs, const std::vector<std::string>& names);

/// How often samples have each label, for people: "labels: 6 neg, 6 pos"; of a regression the range
/// of its numbers.
std::string label_counts(const data::Dataset& samples, const model::Outputs& outputs,
                         const std::vector<std::string>& names);

}  // namespace finetune::train
