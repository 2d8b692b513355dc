#pragma once
// SPDX-License-Identifier: Apache-2.0
// Several texts as one, for a message.

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "core/error.hpp"

namespace finetune::weights {

/// Texts one after the other, each behind its length: what the root sends to the others.
inline void append_field(std::string& packed, std::string_view field) {
  packed += fmt::format("{}\n", field.size());
  packed += field;
}

inline std::string_view take_field(std::string_view& packed) {
  const std::size_t end = packed.find('\n');
  core::check(end != std::string_view::npos, "packed headers are complete");
  const auto size = std::stoull(std::string(packed.substr(0, end)));
  const std::string_view field = packed.substr(end + 1, size);
  packed.remove_prefix(end + 1 + field.size());
  return field;
}

}  // namespace finetune::weights
