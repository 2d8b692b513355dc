// SPDX-License-Identifier: Apache-2.0
#include "data/text/conversation.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "data/text/detail/white_space.hpp"

namespace finetune::data {
namespace {

struct Named {
  std::string_view name;
  NamedRole role;
};

// What data sets on the hub use; ShareGPT's exports kept the names of the products they came from.
constexpr std::array<Named, 22> names = {{
    {"system", {ChatRole::system}},
    {"developer", {ChatRole::system, false, "developer"}},
    {"user", {ChatRole::user}},
    {"human", {ChatRole::user}},
    {"prompter", {ChatRole::user}},
    {"assistant", {ChatRole::assistant}},
    {"gpt", {ChatRole::assistant}},
    {"chatgpt", {ChatRole::assistant}},
    {"bing", {ChatRole::assistant}},
    {"bard", {ChatRole::assistant}},
    {"bot", {ChatRole::assistant}},
    {"chatbot", {ChatRole::assistant}},
    {"model", {ChatRole::assistant}},
    {"function_call", {ChatRole::assistant, true}},
    {"tool_call", {ChatRole::assistant, true}},
    {"tool", {ChatRole::tool}},
    {"function", {ChatRole::tool, false, "function"}},
    {"observation", {ChatRole::tool, false, "observation"}},
    {"function_response", {ChatRole::tool, false, "function_response"}},
    {"tool_response", {ChatRole::tool, false, "tool_response"}},
    {"tool_result", {ChatRole::tool, false, "tool_result"}},
    {"ipython", {ChatRole::tool, false, "ipython"}},
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

const std::vector<std::string>& role_names() {
  static const std::vector<std::string> names = {"assistant", "function_call", "system", "tool",
                                                 "user"};
  return names;
}

const std::vector<std::string>& message_field_names() {
  static const std::vector<std::string> names = {"content", "reasoning_content", "role",
                                                 "tool_calls", "weight"};
  return names;
}

void add_template_kwargs(const core::OrderedJson& deck, Conversation& conversation) {
  if (deck.empty()) return;
  core::OrderedJson names = deck;
  if (conversation.template_kwargs.is_object()) names.update(conversation.template_kwargs);
  conversation.template_kwargs = std::move(names);
}

bool is_empty(const ChatMessage& message) {
  return strip(message.text).empty() && message.calls.empty() && message.reasoning.empty();
}

std::string shown_role(const ChatMessage& message) {
  const auto found = message.fields.find("role");
  return found != message.fields.end() && found->is_string() ? found->get<std::string>()
                                                             : std::string(name_of(message.role));
}

std::string_view name_of(ChatRole role) {
  switch (role) {
    case ChatRole::system:
      return "system";
    case ChatRole::user:
      return "user";
    case ChatRole::assistant:
      return "assistant";
    case ChatRole::tool:
      return "tool";
    case ChatRole::other:
      return "other";
  }
  return "";
}

}  // namespace finetune::data
