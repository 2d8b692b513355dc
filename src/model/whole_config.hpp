#pragma once
// SPDX-License-Identifier: Apache-2.0
// config.json of models that also see or hear, beside what it says of the text.

#include <string>

#include "model/config_json.hpp"

namespace finetune::model {

/// As read_ties_of_whole, for classes that take `of_class` where the whole says nothing. Throws:
/// ErrorKind::input where the text alone says otherwise, which programs read in different ways.
void read_ties_of_whole(const core::Json& config, const std::string& where, bool of_class,
                        Architecture& architecture);

}  // namespace finetune::model
