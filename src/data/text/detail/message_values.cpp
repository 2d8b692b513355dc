// SPDX-License-Identifier: Apache-2.0
#include "data/text/detail/message_values.hpp"

#include <optional>
#include <string>
#include <utility>

#include "core/error.hpp"
#include "core/json.hpp"
#include "core/ordered_json.hpp"
#include "data/records/records.hpp"

namespace finetune::data {
namespace {

using core::OrderedJson;
using jinja::Origin;
using jinja::Text;
using jinja::Value;

Origin origin_of(std::int32_t message, Said said) {
  return {.element = message, .field = static_cast<std::uint8_t>(said)};
}

/// The object that a text says in JSON; nothing if it says none.
std::optional<OrderedJson> object_in(const std::string& text) {
  if (text.find('{') == std::string::npos) return std::nullopt;
  try {
    OrderedJson json = core::ordered_json(text);
    return json.is_object() ? std::optional(std::move(json)) : std::nullopt;
  } catch (const core::Error&) {
    return std::nullopt;
  }
}

/// Arguments that the data have as a text serve templates that walk through them, too.
Value arguments_value(const OrderedJson& arguments, const Origin& origin) {
  if (!arguments.is_string()) return Value::from_json(arguments, origin);
  const auto& text = arguments.get_ref<const std::string&>();
  const auto object = object_in(text);
  if (!object) return Text(text, origin);
  return Value::text_and(Text(text, origin), Value::from_json(*object, origin));
}

Value call_value(const OrderedJson& call, const Origin& origin) {
  const Value plain = Value::from_json(call, origin);
  if (!plain.is_mapping() || !call.contains("function")) return plain;
  const OrderedJson& function = call.at("function");
  jinja::Mapping outer = plain.mapping();
  if (!function.is_object() || !function.contains("arguments")) return outer;
  jinja::Mapping inner = outer.named("function")->mapping();
  inner.set("arguments", arguments_value(function.at("arguments"), origin));
  outer.set("function", std::move(inner));
  return outer;
}

Value calls_value(const OrderedJson& calls, std::int32_t message) {
  const Origin origin = origin_of(message, Said::call);
  if (!calls.is_array()) return Value::from_json(calls, origin);
  std::vector<Value> values;
  for (const OrderedJson& call : calls)
    values.push_back(call_value(call, origin));
  return values;
}

/// Content in parts is a list, and serves templates that take it for a text, too.
Value parts_value(const OrderedJson& parts, const std::string& text, std::int32_t message) {
  const Origin origin = origin_of(message, Said::content);
  return Value::text_and(Text(text, origin), Value::from_json(parts, origin));
}

/// A message whose data have no more than this says.
OrderedJson fields_of(const ChatMessage& message) {
  OrderedJson fields = OrderedJson::object();
  fields["role"] = name_of(message.role);
  fields["content"] = message.text;
  if (!message.reasoning.empty()) {
    fields["reasoning_content"] = message.reasoning;
    fields["thinking"] = message.reasoning;
  }
  for (const ToolCall& call : message.calls) {
    OrderedJson value = OrderedJson::object();
    if (!call.id.empty()) value["id"] = call.id;
    value["type"] = "function";
    value["function"]["name"] = call.name;
    value["function"]["arguments"] =
        call.is_text ? OrderedJson(call.arguments) : core::ordered_json(call.arguments);
    fields["tool_calls"].push_back(std::move(value));
  }
  return fields;
}

Value message_value(const ChatMessage& message, std::int32_t number) {
  jinja::Mapping value;
  value.element = number;
  const OrderedJson fields = message.fields.is_null() ? fields_of(message) : message.fields;
  value.items.reserve(fields.size());
  for (const auto& [name, field] : fields.items()) {
    if (name == "role") {
      // The template decides by it, and writes it as its own.
      value.items.emplace_back(name, Value::from_json(field));
    } else if (name == "tool_calls") {
      value.items.emplace_back(name, calls_value(field, number));
    } else {
      const bool is_parts = name == "content" && field.is_array() &&
                            (message.role != ChatRole::other || !message.text.empty());
      if (is_parts) {
        value.items.emplace_back(name, parts_value(field, message.text, number));
        continue;
      }
      const bool is_reasoning =
          name == "reasoning_content" || name == "thinking" || name == "reasoning";
      const Said said = name == "content" ? Said::content
                        : is_reasoning    ? Said::reasoning
                                          : Said::other;
      value.items.emplace_back(name, Value::from_json(field, origin_of(number, said)));
    }
  }
  return value;
}

}  // namespace

std::vector<Value> message_values(const Conversation& conversation) {
  std::vector<Value> values;
  values.reserve(conversation.messages.size());
  for (const ChatMessage& message : conversation.messages)
    values.push_back(message_value(message, static_cast<std::int32_t>(values.size())));
  return values;
}

Value tool_values(const Conversation& conversation) {
  if (conversation.tools.empty()) return {};
  std::vector<Value> values;
  for (const std::string& tool : conversation.tools)
    values.push_back(
        Value::from_json(core::ordered_json(tool), origin_of(Origin::none, Said::tool)));
  return values;
}

}  // namespace finetune::data
