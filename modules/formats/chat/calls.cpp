// SPDX-License-Identifier: Apache-2.0
#include "formats/chat/calls.hpp"

#include <fmt/format.h>

#include <utility>

#include "core/error.hpp"

namespace finetune::formats::chat {
namespace {

using data::OrderedJson;

constexpr const char* correct = "Correct or remove this message.";

[[noreturn]] void refuse_at(const std::string& where, const std::string& problem,
                            const std::string& why, const std::string& remedy) {
  core::fail(core::ErrorKind::input, {where, problem, why, remedy});
}

const OrderedJson* member(const OrderedJson& json, const char* name) {
  if (!json.is_object()) return nullptr;
  const auto found = json.find(name);
  return found == json.end() || found->is_null() ? nullptr : &*found;
}

/// As OpenAI's services have it, in the order of `json`: in a call its function, or the function
/// alone.
OrderedJson for_templates(const OrderedJson& json) {
  OrderedJson call = OrderedJson::object();
  if (member(json, "function") != nullptr) {
    for (const auto& item : json.items()) {
      if (item.key() == "function" && member(json, "type") == nullptr) call["type"] = "function";
      call[item.key()] = item.value();
    }
    return call;
  }
  if (const auto id = json.find("id"); id != json.end()) call["id"] = *id;
  call["type"] = "function";
  OrderedJson function = OrderedJson::object();
  for (const auto& item : json.items()) {
    if (item.key() == "name" || item.key() == "arguments") function[item.key()] = item.value();
  }
  call["function"] = std::move(function);
  for (const auto& item : json.items()) {
    if (item.key() != "name" && item.key() != "arguments" && !call.contains(item.key()))
      call[item.key()] = item.value();
  }
  return call;
}

data::ToolCall read_call(const OrderedJson& json, const std::string& where) {
  const OrderedJson* inside = member(json, "function");
  const OrderedJson& function = inside == nullptr ? json : *inside;
  const OrderedJson* name = member(function, "name");
  const OrderedJson* arguments = member(function, "arguments");
  if (name == nullptr || arguments == nullptr)
    refuse_at(where, "calls no function", "a call is {\"name\": ..., \"arguments\": {...}}",
              correct);
  if (!name->is_string())
    refuse_at(where, fmt::format("\"name\" is of type {}", core::type_name(*name)),
              "text is needed", "Make it a string.");
  data::ToolCall call{.name = name->get<std::string>(), .arguments = {}};
  if (const OrderedJson* id = member(json, "id"))
    call.id = id->is_string() ? id->get<std::string>() : data::dump_json(*id);
  call.is_text = arguments->is_string();
  if (!call.is_text) {
    call.arguments = data::dump_json(*arguments);
    return call;
  }
  call.arguments = arguments->get<std::string>();
  core::parse_json(call.arguments, where + ": \"arguments\"");
  return call;
}

bool is_blank(const OrderedJson& json) {
  return json.is_null() || (json.is_string() && json.get_ref<const std::string&>().empty());
}

}  // namespace

ReadCalls read_calls(const OrderedJson& json, const std::string& where) {
  if (json.is_string())
    return read_calls(core::ordered_json(json.get<std::string>(), where), where);
  ReadCalls read;
  const auto add = [&](const OrderedJson& call) {
    read.calls.push_back(read_call(call, where));
    read.list.push_back(for_templates(call));
  };
  if (!json.is_array()) {
    add(json);
    return read;
  }
  for (const OrderedJson& each : json)
    add(each.is_string() ? core::ordered_json(each.get<std::string>(), where) : each);
  return read;
}

std::vector<std::string> read_tools(const OrderedJson& json, const std::string& where) {
  if (is_blank(json)) return {};
  const OrderedJson tools =
      json.is_string() ? core::ordered_json(json.get<std::string>(), where) : json;
  if (tools.is_null()) return {};
  if (tools.is_object()) return {data::dump_json(tools)};
  if (!tools.is_array())
    refuse_at(where, fmt::format("is of type {}", core::type_name(tools)),
              "functions come in a list", "Correct it.");
  std::vector<std::string> texts;
  for (const OrderedJson& each : tools) {
    const std::string at = fmt::format("{}: function {}", where, texts.size() + 1);
    const OrderedJson tool =
        each.is_string() ? core::ordered_json(each.get<std::string>(), at) : each;
    if (!tool.is_object())
      refuse_at(at, fmt::format("is of type {}", core::type_name(tool)),
                "a function is an object, { ... }, or its JSON text", "Correct it.");
    texts.push_back(data::dump_json(tool));
  }
  return texts;
}

OrderedJson read_template_kwargs(const OrderedJson& json, const std::string& where) {
  if (is_blank(json)) return nullptr;
  const OrderedJson names =
      json.is_string() ? core::ordered_json(json.get<std::string>(), where) : json;
  if (names.is_null() || names.is_object()) return names;
  refuse_at(where, fmt::format("is of type {}", core::type_name(names)),
            "names for the chat template are an object, { ... }, or its JSON text", "Correct it.");
}

}  // namespace finetune::formats::chat
