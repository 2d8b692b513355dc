#pragma once
// SPDX-License-Identifier: Apache-2.0
// Names that come from files of others: which are usable, and how to print them.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace finetune::weights {

/// `text` in quotes, control characters escaped and cut after 200 bytes: safe for a terminal and
/// for one line.
std::string in_quotes(std::string_view text);

/// "[64, 96]"; "[]" for a scalar.
std::string shape_text(const std::vector<std::int64_t>& shape);

/// Whether `name` is a plain file name: letters, digits, '.', '_', '-', not beginning with a sign,
/// at most 255 bytes. So it can neither leave its folder nor be hidden in it.
bool is_plain_file_name(std::string_view name);

}  // namespace finetune::weights
