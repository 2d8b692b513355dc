// SPDX-License-Identifier: Apache-2.0
#include "formats/chat/message.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.hpp"
#include "core/text.hpp"

namespace finetune::formats::chat {
namespace {

using data::ChatMessage;
using data::ChatRole;
using data::OrderedJson;

[[noreturn]] void refuse(const std::string& where, const std::string& problem,
                         const std::string& why, const std::string& remedy) {
  core::fail(core::ErrorKind::input, {where, problem, why, remedy});
}

const OrderedJson* find(const OrderedJson& json, const std::string& name) {
  const auto found = json.find(name);
  return found == json.end() || found->is_null() ? nullptr : &*found;
}

/// The first of `names` that `json` has.
const OrderedJson* first_of(const OrderedJson& json, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const auto found = json.find(name);
    if (found != json.end()) return &*found;
  }
  return nullptr;
}

std::string text_of(const OrderedJson& json, const std::string& name, const std::string& where) {
  if (json.is_string()) return json.get<std::string>();
  refuse(where, fmt::format("\"{}\" is of type {}", core::one_line(name), json.type_name()),
         "text is needed", "Make it a string.");
}

/// JSON inside a string, with the checks of all JSON that others wrote.
OrderedJson parse_text(const std::string& text, const std::string& where) {
  core::parse_json(text, where);
  return OrderedJson::parse(text);
}

data::ToolCall read_call(const OrderedJson& json, const std::string& where) {
  const OrderedJson* call = json.is_object() ? find(json, "function") : nullptr;
  if (call == nullptr) call = &json;
  const OrderedJson* name = call->is_object() ? find(*call, "name") : nullptr;
  const OrderedJson* arguments = call->is_object() ? find(*call, "arguments") : nullptr;
  if (name == nullptr || arguments == nullptr) {
    refuse(where, "calls no function", "a call is {\"name\": ..., \"arguments\": {...}}",
           "Correct or remove this message.");
  }
  // As text they may be anything; as JSON they are written in one way only.
  const OrderedJson value =
      arguments->is_string() ? parse_text(arguments->get<std::string>(), where + ": \"arguments\"")
                             : *arguments;
  return {text_of(*name, "name", where), data::dump_json(value)};
}

std::vector<data::ToolCall> read_calls(const OrderedJson& json, const std::string& where) {
  std::vector<data::ToolCall> calls;
  if (!json.is_array()) return {read_call(json, where)};
  for (const OrderedJson& each : json)
    calls.push_back(read_call(each, where));
  return calls;
}

void add_part(const OrderedJson& part, ChatMessage& message, const std::string& where) {
  if (part.is_string()) {
    message.text += part.get<std::string>();
    return;
  }
  const OrderedJson* type = part.is_object() ? find(part, "type") : nullptr;
  const std::string kind = type != nullptr ? text_of(*type, "type", where) : "";
  const auto value = [&] {
    const OrderedJson* found = find(part, "value");
    for (const char* name : {"text", "reasoning", "thinking"}) {
      if (found == nullptr) found = find(part, name);
    }
    return found != nullptr ? text_of(*found, kind, where) : std::string();
  };
  if (kind == "text" || kind == "input_text" || kind == "output_text") {
    message.text += value();
  } else if (kind == "reasoning" || kind == "thinking") {
    message.reasoning += value();
  } else if (kind == "tool_call") {
    const auto calls = read_calls(parse_text(value(), where), where);
    message.calls.insert(message.calls.end(), calls.begin(), calls.end());
  } else {
    refuse(where,
           kind.empty() ? "has a part without a \"type\""
                        : fmt::format("has a part of type \"{}\"", core::one_line(kind)),
           "only text is trained on here", "Remove this part, or the sample.");
  }
}

void read_text(const OrderedJson& text, const std::string& name, ChatMessage& message,
               const std::string& where) {
  if (text.is_string()) {
    message.text = text.get<std::string>();
  } else if (text.is_array()) {
    for (const OrderedJson& part : text)
      add_part(part, message, where);
  } else if (message.role == ChatRole::tool && text.is_object()) {
    message.text = data::dump_json(text);
  } else if (!text.is_null()) {
    text_of(text, name, where);
  }
}

/// OpenAI's `weight` and others' names for it: whether an answer is trained.
bool is_trained(const OrderedJson& json, const std::vector<std::string>& names, ChatRole role,
                const std::string& where) {
  for (const std::string& name : names) {
    const OrderedJson* value = find(json, name);
    if (value == nullptr) continue;
    const bool is_one = *value == 1 || *value == 1.0 || *value == true;
    const bool is_zero = *value == 0 || *value == 0.0 || *value == false;
    if (is_zero || (is_one && role == ChatRole::assistant)) return is_one;
    refuse(where, fmt::format("\"{}\" is {}", core::one_line(name), core::one_line(value->dump())),
           "an answer is trained (1) or not (0), and nothing else can be with "
           "data.train_on = \"answers\"",
           "Make it 0 or 1.");
  }
  return true;
}

std::string names_in(const OrderedJson& json) {
  std::string names;
  for (const auto& item : json.items())
    names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", core::one_line(item.key()));
  return names.substr(0, 200);
}

std::optional<data::NamedRole> role_of(const std::string& name, const FieldNames& names) {
  const auto chosen = names.roles.find(name);
  return chosen == names.roles.end() ? data::role_named(name) : std::optional(chosen->second);
}

}  // namespace

FieldNames FieldNames::chosen(const data::Columns& columns, FieldNames usual) {
  const auto put = [&](const char* field, std::vector<std::string>& names) {
    const auto found = columns.message_fields.find(field);
    if (found != columns.message_fields.end()) names.insert(names.begin(), found->second);
  };
  put("role", usual.role);
  put("content", usual.text);
  put("reasoning_content", usual.reasoning);
  put("tool_calls", usual.calls);
  put("weight", usual.weight);
  for (const auto& [role, list] : columns.roles) {
    const auto named = data::role_named(role);
    core::check(named.has_value(), "data.roles has names of roles alone");
    for (std::size_t begin = 0; begin <= list.size();) {
      const std::size_t end = std::min(list.find(',', begin), list.size());
      const std::string name = core::trimmed(list.substr(begin, end - begin));
      if (!name.empty()) usual.roles[name] = *named;
      begin = end + 1;
    }
  }
  return usual;
}

void add_messages(const OrderedJson& list, const FieldNames& names, const std::string& name,
                  const std::string& where, data::Conversation& conversation) {
  if (!list.is_array() || list.empty())
    refuse(where,
           fmt::format(
               "field \"{}\" is {}", core::one_line(name),
               list.is_array() ? "an empty list" : fmt::format("of type {}", list.type_name())),
           "an answer is a text, or a list of messages", "Correct it.");
  std::size_t number = 0;
  for (const OrderedJson& each : list) {
    const std::string at =
        fmt::format("{}: field \"{}\": message {}", where, core::one_line(name), ++number);
    auto message = read_message(each, names, at);
    if (!message)
      refuse(at, "has an unknown role", "what it answers would be left out",
             "Correct it, or name the role in data.roles.");
    conversation.messages.push_back(*std::move(message));
  }
}

std::optional<ChatMessage> read_message(const OrderedJson& json, const FieldNames& names,
                                        const std::string& where) {
  if (!json.is_object()) {
    refuse(where, fmt::format("is a JSON {}", json.type_name()), "a message is an object, { ... }",
           "Correct or remove it.");
  }
  const OrderedJson* role = first_of(json, names.role);
  if (role == nullptr) {
    refuse(
        where, fmt::format("has no \"{}\"", names.role.front()),
        json.empty() ? "the message is empty" : "its fields are " + names_in(json),
        "Correct the message, or choose the data.format of these data (\"chat\" reads several).");
  }
  const auto named = role_of(text_of(*role, names.role.front(), where), names);
  if (!named) return std::nullopt;
  ChatMessage message;
  message.role = named->role;
  message.trained = is_trained(json, names.weight, named->role, where);
  const OrderedJson* text = first_of(json, names.text);
  for (const std::string& name : names.calls) {
    const OrderedJson* calls = find(json, name);
    if (calls != nullptr && !calls->empty()) message.calls = read_calls(*calls, where);
  }
  if (text == nullptr && message.calls.empty()) {
    refuse(
        where, fmt::format("has no \"{}\"", names.text.front()), "its fields are " + names_in(json),
        "Correct the message, or choose the data.format of these data (\"chat\" reads several).");
  }
  if (text != nullptr) read_text(*text, names.text.front(), message, where);
  if (named->is_call) {
    message.calls = read_calls(parse_text(message.text, where), where);
    message.text.clear();
  }
  for (const std::string& name : names.reasoning) {
    const OrderedJson* reasoning = find(json, name);
    if (reasoning != nullptr && message.reasoning.empty())
      message.reasoning = text_of(*reasoning, name, where);
  }
  return message;
}

std::vector<std::string> read_tools(const OrderedJson& json, const std::string& where) {
  if (json.is_null() || (json.is_string() && json.get<std::string>().empty())) return {};
  const OrderedJson tools = json.is_string() ? parse_text(json.get<std::string>(), where) : json;
  std::vector<std::string> texts;
  if (tools.is_object()) return {data::dump_json(tools)};
  if (!tools.is_array()) {
    refuse(where, fmt::format("is of type {}", tools.type_name()), "functions come in a list",
           "Correct it.");
  }
  for (const OrderedJson& tool : tools)
    texts.push_back(data::dump_json(tool));
  return texts;
}

}  // namespace finetune::formats::chat
