#pragma once
// SPDX-License-Identifier: Apache-2.0
// axolotl: the kinds of its data sets.

#include <string>

#include "migrate/detail/source.hpp"

namespace finetune::migrate {

/// The entry of `set`, if it is a text and not empty; or null.
const Node* text_in_axolotl(const Node& set, const char* key);

/// Format, columns and prompt of a data set by its type, which is `usual` where it says none.
void take_kind_of_axolotl(const Node& set, const std::string& usual, DataSet& out, Draft& draft);

}  // namespace finetune::migrate
