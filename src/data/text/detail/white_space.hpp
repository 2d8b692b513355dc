#pragma once
// SPDX-License-Identifier: Apache-2.0
// White space at the ends of texts, as chat templates drop it.

#include <string_view>

namespace finetune::data {

/// Without the white space at one end or both: what Python's str.strip drops, since templates are
/// written for it.
std::string_view strip_left(std::string_view text);
std::string_view strip_right(std::string_view text);
std::string_view strip(std::string_view text);

/// Without any of the bytes of `characters` at one end.
std::string_view strip_left(std::string_view text, std::string_view characters);
std::string_view strip_right(std::string_view text, std::string_view characters);

}  // namespace finetune::data
