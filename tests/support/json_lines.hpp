#pragma once
// SPDX-License-Identifier: Apache-2.0
// Programs that answer questions of scripts: a line of JSON each.

#include <exception>
#include <iostream>
#include <string>

#include "core/ordered_json.hpp"

namespace finetune::tests {

/// Answers each line of stdin with a line of stdout, at once: what `answer` returns, or {"error"}
/// where it throws. Bytes that are not UTF-8 are replaced.
template <typename F>
void answer_lines(const F& answer) {
  using Json = nlohmann::ordered_json;
  const auto answered = [&](const std::string& line) -> Json {
    try {
      return answer(core::ordered_json(line));
    } catch (const std::exception& error) {
      return {{"error", error.what()}};
    }
  };
  for (std::string line; std::getline(std::cin, line);)
    std::cout << answered(line).dump(-1, ' ', false, Json::error_handler_t::replace) << std::endl;
}

}  // namespace finetune::tests
