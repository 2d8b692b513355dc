#pragma once
// SPDX-License-Identifier: Apache-2.0
// Every chat template of this folder: one .toml each, and the same in Jinja.

#include <string_view>
#include <vector>

#include "data/text/chat_template.hpp"

namespace finetune::templates {

/// In the order of their names. They are read again on every call.
std::vector<data::ChatTemplate> all();

/// A template as its .jinja says it, which marks answers by {% generation %}.
struct JinjaText {
  std::string_view name;
  std::string_view text;
};

/// In the order of their names.
std::vector<JinjaText> jinja_texts();

}  // namespace finetune::templates
