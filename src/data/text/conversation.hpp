#pragma once
// SPDX-License-Identifier: Apache-2.0
// A conversation as a data set has it, before a chat template gives it its markup.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/ordered_json.hpp"

namespace finetune::data {

/// `other`: any that is none of these.
enum class ChatRole { system, user, assistant, tool, other };

/// A function that the assistant calls.
struct ToolCall {
  std::string name;
  /// JSON: as the data have it where that is a text (`is_text`), else as dump_json writes it.
  std::string arguments;
  std::string id = {};  ///< empty: the data have none
  bool is_text = false;
};

struct ChatMessage {
  ChatRole role = ChatRole::user;
  std::string text;
  std::string reasoning = {};        ///< what the assistant thought before it answered
  std::vector<ToolCall> calls = {};  ///< of the assistant
  bool trained = true;               ///< false: the data say that this answer is not to be learned
  /// What a template is to see, in the data's order; null: the members above are all there is.
  ///
  /// "role" (as the data say it, where they say it in "role"; see settle_roles), "content" (a text,
  /// null or the list of parts), "reasoning_content" and "thinking" (both where either, or
  /// "reasoning", is there and not null), "tool_calls" ({"id", "type": "function", "function":
  /// {"name", "arguments"}}, arguments as a text where the data have one), "name", "tool_call_id"
  /// and all further fields as they are. Whole numbers of any length: core::exact_digits.
  core::OrderedJson fields = {};
};

struct Conversation {
  std::vector<ChatMessage> messages;
  std::vector<std::string> tools;  ///< functions on offer: objects, each as dump_json writes it
  /// Names that the template is given beside the messages: data.template_kwargs, and over it what
  /// the sample's own column says. An object, or null: none.
  core::OrderedJson template_kwargs = {};
};

/// The role that a name found in data stands for: human and user, gpt and assistant, ...; nothing
/// for a name that is not known. Capitals count as small letters.
struct NamedRole {
  ChatRole role;
  bool is_call = false;       ///< the text of the message is a call of a function
  std::string_view own = {};  ///< the name, if templates may know it by that: developer, ipython
};
std::optional<NamedRole> role_named(std::string_view name);

std::string_view name_of(ChatRole role);

/// As templates see it: of `fields`, else name_of.
std::string shown_role(const ChatMessage& message);

/// Names that data.roles and data.message_fields may have, in the order of their bytes.
const std::vector<std::string>& role_names();
const std::vector<std::string>& message_field_names();

/// Gives the conversation's template the names of `deck`, an object or null, but for those that the
/// sample has itself.
void add_template_kwargs(const core::OrderedJson& deck, Conversation& conversation);

/// Whether it says nothing, calls nothing and has thought nothing.
bool is_empty(const ChatMessage& message);

}  // namespace finetune::data
