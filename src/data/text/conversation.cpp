// SPDX-License-Identifier: Apache-2.0
#include "data/text/conversation.hpp"

#include <algorithm>
#include <array>

namespace finetune::data {
namespace {

struct Named {
  std::string_view name;
  NamedRole role;
};

// What data sets on the hub use; ShareGPT's exports kept the names of the products they came from.
constexpr std::array<Named, 22> names = {{
    {"system", {Role::system}},
    {"developer", {Role::system}},
    {"user", {Role::user}},
    {"human", {Role::user}},
    {"prompter", {Role::user}},
    {"assistant", {Role::assistant}},
    {"gpt", {Role::assistant}},
    {"chatgpt", {Role::assistant}},
    {"bing", {Role::assistant}},
    {"bard", {Role::assistant}},
    {"bot", {Role::assistant}},
    {"chatbot", {Role::assistant}},
    {"model", {Role::assistant}},
    {"function_call", {Role::assistant, true}},
    {"tool_call", {Role::assistant, true}},
    {"tool", {Role::tool}},
    {"function", {Role::tool}},
    {"observation", {Role::tool}},
    {"function_response", {Role::tool}},
    {"tool_response", {Role::tool}},
    {"tool_result", {Role::tool}},
    {"ipython", {Role::tool}},
}};

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

}  // namespace

std::optional<NamedRole> role_named(std::string_view name) {
  const auto found = std::find_if(names.begin(), names.end(), [&](const Named& each) {
    return std::equal(name.begin(), name.end(), each.name.begin(), each.name.end(),
                      [](char given, char known) { return lower(given) == known; });
  });
  if (found == names.end()) return std::nullopt;
  return found->role;
}

std::string_view name_of(Role role) {
  switch (role) {
    case Role::system:
      return "system";
    case Role::user:
      return "user";
    case Role::assistant:
      return "assistant";
    case Role::tool:
      return "tool";
  }
  return "";
}

}  // namespace finetune::data
