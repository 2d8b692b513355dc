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
const std::string* first_of(const OrderedJson& json, const std::vector<std::string>& names) {
  const auto found =
      std::ranges::find_if(names, [&](const std::string& name) { return json.contains(name); });
  return found == names.end() ? nullptr : &*found;
}

std::string text_of(const OrderedJson& json, const std::string& name, const std::string& where) {
  if (json.is_string()) return json.get<std::string>();
  refuse(where, fmt::format("\"{}\" is of type {}", core::one_line(name), core::type_name(json)),
         "text is needed", "Make it a string.");
}

/// What a message says, and how a template is to see it.
struct Content {
  OrderedJson shown = {};  ///< null, a text, or a list of parts
  OrderedJson calls = OrderedJson::array();
};

void add_calls(const OrderedJson& json, ChatMessage& message, Content& content,
               const std::string& where) {
  ReadCalls read = read_calls(json, where);
  for (data::ToolCall& call : read.calls)
    message.calls.push_back(std::move(call));
  for (OrderedJson& call : read.list)
    content.calls.push_back(std::move(call));
}

/// `part`, whose text may have another name, as templates look for it.
OrderedJson text_part(const OrderedJson& part, std::string text) {
  OrderedJson made = {{"type", "text"}, {"text", std::move(text)}};
  if (!part.is_object()) return made;
  for (const auto& item : part.items())
    if (item.key() != "value" && !made.contains(item.key())) made[item.key()] = item.value();
  return made;
}

void add_part(const OrderedJson& part, ChatMessage& message, Content& content,
              const std::string& where) {
  if (part.is_string()) {
    message.text += part.get<std::string>();
    content.shown.push_back(text_part(part, part.get<std::string>()));
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
    content.shown.push_back(text_part(part, value()));
  } else if (kind == "reasoning" || kind == "thinking") {
    message.reasoning += value();
    content.shown.push_back(part);
  } else if (kind == "tool_call") {
    add_calls(core::ordered_json(value(), where), message, content, where);
  } else {
    refuse(where,
           kind.empty() ? "has a part without a \"type\""
                        : fmt::format("has a part of type \"{}\"", core::one_line(kind)),
           "only text is trained on here", "Remove this part, or the sample.");
  }
}

void read_text(const OrderedJson& text, const std::string& name, ChatMessage& message,
               Content& content, const std::string& where) {
  if (text.is_array()) {
    content.shown = OrderedJson::array();
    for (const OrderedJson& part : text)
      add_part(part, message, content, where);
    return;
  }
  if (text.is_null()) return;
  const bool is_result = message.role == ChatRole::tool && text.is_object();
  message.text = is_result ? data::dump_json(text) : text_of(text, name, where);
  content.shown = message.text;
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
  return std::string(core::first_bytes(names, 200));
}

std::optional<data::NamedRole> role_of(const std::string& name, const FieldNames& names) {
  const auto chosen = names.roles.find(name);
  return chosen == names.roles.end() ? data::role_named(name) : std::optional(chosen->second);
}

/// The first of the fields that hold calls which has any.
const std::string* calls_in(const OrderedJson& json, const FieldNames& names) {
  for (const std::string& name : names.calls) {
    const OrderedJson* calls = find(json, name);
    if (calls != nullptr && !calls->empty() && *calls != "") return &name;
  }
  return nullptr;
}

[[noreturn]] void refuse_without(const OrderedJson& json, const std::string& name,
                                 const std::string& where) {
  refuse(where, fmt::format("has no \"{}\"", name),
         json.empty() ? "the message is empty" : "its fields are " + names_in(json),
         "Correct the message, or choose the data.format of these data (\"chat\" reads several).");
}

/// What the fields of one message are called; null: it has none.
struct Sources {
  const std::string* role;
  const std::string* text;
  const std::string* calls;
};

/// The role as a template is to see it: as the data say it where they speak as templates do.
std::string shown_role(const OrderedJson& json, const std::string& field, const FieldNames& names) {
  const std::string said = json.at(field).get<std::string>();
  const auto named = role_of(said, names);
  if (!named) return said;
  const bool stays = !named->own.empty() && field == "role" && !names.roles.contains(said);
  return std::string(stays ? named->own : data::name_of(named->role));
}

/// What the message of a role that is not known says: of content that is no text nothing.
void read_other(const OrderedJson& json, const std::string* name, ChatMessage& message,
                Content& content, const std::string& where) {
  if (name == nullptr) return;
  try {
    read_text(json.at(*name), *name, message, content, where);
  } catch (const core::Error&) {
    message.text.clear();
    message.reasoning.clear();
    message.calls.clear();
    content = {.shown = json.at(*name)};
  }
}

/// What the message thought, as fields that templates look for; null: it says nothing of thoughts.
OrderedJson thoughts_of(const OrderedJson& json, const FieldNames& names,
                        const ChatMessage& message) {
  const bool is_said = std::ranges::any_of(
      names.reasoning, [&](const std::string& name) { return find(json, name) != nullptr; });
  return is_said || !message.reasoning.empty() ? OrderedJson(message.reasoning) : OrderedJson();
}

/// The message for templates, under the names that they know, in the order of `json`.
OrderedJson fields_of(const OrderedJson& json, const Sources& sources, const ChatMessage& message,
                      Content content, const FieldNames& names) {
  const bool has_calls = !content.calls.empty();
  OrderedJson fields = OrderedJson::object();
  for (const auto& item : json.items()) {
    const std::string& key = item.key();
    if (key == *sources.role) {
      fields["role"] = shown_role(json, key, names);
    } else if (sources.text != nullptr && key == *sources.text) {
      fields["content"] = std::move(content.shown);
    } else if (sources.calls != nullptr && key == *sources.calls) {
      fields["tool_calls"] = std::move(content.calls);
    } else if (key != "role" && key != "content" && !(has_calls && key == "tool_calls")) {
      fields[key] = item.value();
    }
  }
  if (has_calls && !fields.contains("tool_calls")) fields["tool_calls"] = std::move(content.calls);
  const OrderedJson thoughts = thoughts_of(json, names, message);
  for (const char* name : {"reasoning_content", "thinking"})
    if (!thoughts.is_null() && find(fields, name) == nullptr) fields[name] = thoughts;
  return fields;
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
           fmt::format("field \"{}\" is {}", core::one_line(name),
                       list.is_array() ? "an empty list"
                                       : fmt::format("of type {}", core::type_name(list))),
           "an answer is a text, or a list of messages", "Correct it.");
  std::size_t number = 0;
  for (const OrderedJson& each : list) {
    const std::string at =
        fmt::format("{}: field \"{}\": message {}", where, core::one_line(name), ++number);
    conversation.messages.push_back(read_message(each, names, at));
  }
}

ChatMessage read_message(const OrderedJson& json, const FieldNames& names,
                         const std::string& where) {
  if (!json.is_object()) {
    refuse(where, fmt::format("is a JSON {}", core::type_name(json)),
           "a message is an object, { ... }", "Correct or remove it.");
  }
  const std::string* role = first_of(json, names.role);
  if (role == nullptr) refuse_without(json, names.role.front(), where);
  const auto named = role_of(text_of(json.at(*role), names.role.front(), where), names);
  ChatMessage message;
  Content content;
  if (!named) {
    message.role = ChatRole::other;
    const std::string* text = first_of(json, names.text);
    read_other(json, text, message, content, where);
    message.fields = fields_of(json, {role, text, nullptr}, message, std::move(content), names);
    return message;
  }
  message.role = named->role;
  message.trained = is_trained(json, names.weight, named->role, where);
  const std::string* calls = calls_in(json, names);
  if (calls != nullptr) add_calls(json.at(*calls), message, content, where);
  const std::string* text = first_of(json, names.text);
  if (text == nullptr && message.calls.empty()) refuse_without(json, names.text.front(), where);
  if (text != nullptr) read_text(json.at(*text), names.text.front(), message, content, where);
  if (named->is_call) {
    message.calls.clear();
    content.calls = OrderedJson::array();
    add_calls(core::ordered_json(message.text, where), message, content, where);
    message.text.clear();
    content.shown = "";
  }
  for (const std::string& name : names.reasoning) {
    const OrderedJson* reasoning = find(json, name);
    if (reasoning != nullptr && message.reasoning.empty())
      message.reasoning = text_of(*reasoning, name, where);
  }
  message.fields = fields_of(json, {role, text, calls}, message, std::move(content), names);
  return message;
}

OrderedJson messages_of(const data::Records& records, OrderedJson list, const FieldNames& names) {
  if (!records.pads_nulls() || !list.is_array()) return list;
  for (OrderedJson& message : list) {
    if (!message.is_object()) continue;
    OrderedJson made = OrderedJson::object();
    for (const auto& item : message.items()) {
      // All messages have a text: null is what this one says.
      const bool stays = std::ranges::find(names.text, item.key()) != names.text.end();
      if (stays || !item.value().is_null()) made[item.key()] = data::without_nulls(item.value());
    }
    message = std::move(made);
  }
  return list;
}

OrderedJson beside(const data::Records& records, const data::OrderedJson& record,
                   const data::Column& column, const std::string& where) {
  const OrderedJson* value = data::find_field(record, column, where);
  if (value == nullptr) return nullptr;
  return records.pads_nulls() ? data::without_nulls(*value) : *value;
}

std::vector<std::string> tools_beside(const data::Records& records, const data::OrderedJson& record,
                                      const data::Column& column, const std::string& where) {
  return read_tools(beside(records, record, column, where),
                    fmt::format("{}: field \"{}\"", where, core::one_line(column.name)));
}

OrderedJson kwargs_beside(const data::Records& records, const data::OrderedJson& record,
                          const data::Column& column, const std::string& where) {
  return read_template_kwargs(beside(records, record, column, where),
                              fmt::format("{}: field \"{}\"", where, core::one_line(column.name)));
}

data::Conversation conversation_of(const data::Records& records, const OrderedJson& record,
                                   const std::string& where) {
  const FieldNames names{{"role"}, {"content"}};
  const data::Column column = data::column_of({}, {"messages"});
  const OrderedJson list = data::structured(
      messages_of(records, data::field(record, column, where), names), column.name, where);
  data::Conversation conversation;
  add_messages(list, names, column.name, where, conversation);
  conversation.tools = tools_beside(records, record, data::column_of({}, tools_field), where);
  conversation.template_kwargs =
      kwargs_beside(records, record, data::column_of({}, kwargs_field), where);
  return conversation;
}

}  // namespace finetune::formats::chat
