#pragma once
// SPDX-License-Identifier: Apache-2.0
// Names of roles that need no word in a deck.

#include <array>
#include <string_view>
#include <utility>

namespace finetune::migrate {

/// The role (of data.roles) that readers of conversations take a name for; empty: none.
constexpr std::string_view data_role(std::string_view name) {
  constexpr auto known = std::to_array<std::pair<std::string_view, std::string_view>>(
      {{"system", "system"},
       {"developer", "system"},
       {"user", "user"},
       {"human", "user"},
       {"prompter", "user"},
       {"assistant", "assistant"},
       {"gpt", "assistant"},
       {"chatgpt", "assistant"},
       {"bot", "assistant"},
       {"chatbot", "assistant"},
       {"model", "assistant"},
       {"function_call", "function_call"},
       {"tool_call", "function_call"},
       {"tool", "tool"},
       {"function", "tool"},
       {"observation", "tool"}});
  for (const auto& [each, role] : known)
    if (each == name) return role;
  return "";
}

}  // namespace finetune::migrate
