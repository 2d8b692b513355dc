#pragma once
// SPDX-License-Identifier: Apache-2.0
// Every chat template of this folder: one .jinja each, which marks answers by {% generation %}.

#include <vector>

#include "data/text/chat_template.hpp"

namespace finetune::templates {

/// In the order of their names.
std::vector<data::ChatTemplate> all();

}  // namespace finetune::templates
