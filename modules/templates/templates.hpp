#pragma once
// SPDX-License-Identifier: Apache-2.0
// Every chat template of this folder: one .toml each.

#include <vector>

#include "data/text/chat_template.hpp"

namespace finetune::templates {

/// In the order of their names. They are read again on every call.
std::vector<data::ChatTemplate> all();

}  // namespace finetune::templates
