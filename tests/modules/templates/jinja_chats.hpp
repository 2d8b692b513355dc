#pragma once
// SPDX-License-Identifier: Apache-2.0
// Conversations with what of them is trained, as templates write them, also those in Jinja.

#include <algorithm>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "data/text/chat_template.hpp"
#include "jinja/template.hpp"
#include "modules/templates/chats.hpp"

namespace finetune::tests {

/// Bytes of a text: begin and end.
using Ranges = std::vector<std::pair<std::size_t, std::size_t>>;

/// A text and what of it is trained; or why there is none.
struct WrittenChat {
  std::string text = {};
  Ranges trained = {};
  std::string refusal = {};

  bool operator==(const WrittenChat&) const = default;
};

/// Without empty ones; those that touch are one.
inline Ranges joined_ranges(const Ranges& ranges) {
  Ranges made;
  for (const auto& [begin, end] : ranges) {
    if (begin == end) continue;
    if (!made.empty() && made.back().second == begin) {
      made.back().second = end;
    } else {
      made.emplace_back(begin, end);
    }
  }
  return made;
}

/// The text, with what is trained in ‹ ›.
inline std::string marked(const WrittenChat& written) {
  if (!written.refusal.empty()) return "refused: " + written.refusal;
  std::string text = written.text;
  for (auto range = written.trained.rbegin(); range != written.trained.rend(); ++range) {
    text.insert(range->second, "›");
    text.insert(range->first, "‹");
  }
  return text;
}

inline WrittenChat written_chat(const std::vector<data::Segment>& segments) {
  WrittenChat made;
  for (const data::Segment& segment : segments) {
    const std::size_t begin = made.text.size();
    made.text += segment.text;
    if (segment.trained) made.trained.emplace_back(begin, made.text.size());
  }
  made.trained = joined_ranges(made.trained);
  return made;
}

/// Without the place, which the message begins with.
inline WrittenChat refused_chat(const core::Error& error, std::string_view where) {
  return {.refusal = std::string(error.what()).substr(where.size())};
}

enum class Arguments { as_values, as_text };

inline jinja::Value json_value(const std::string& text) {
  return jinja::Value::from_json(data::OrderedJson::parse(text));
}

inline jinja::Value message_value(const data::ChatMessage& message, Arguments arguments) {
  jinja::Mapping value;
  value.set("role", std::string(name_of(message.role)));
  value.set("content", message.text);
  if (!message.reasoning.empty()) value.set("reasoning_content", message.reasoning);
  std::vector<jinja::Value> calls;
  for (const data::ToolCall& each : message.calls) {
    jinja::Mapping function, call;
    function.set("name", each.name);
    function.set("arguments", arguments == Arguments::as_text ? jinja::Value(each.arguments)
                                                              : json_value(each.arguments));
    call.set("type", "function");
    call.set("function", std::move(function));
    calls.emplace_back(std::move(call));
  }
  if (!calls.empty()) value.set("tool_calls", std::move(calls));
  return value;
}

inline std::string_view jinja_text(std::string_view name) {
  static const std::vector<templates::JinjaText> all = templates::jinja_texts();
  const auto found = std::ranges::find(all, name, &templates::JinjaText::name);
  if (found == all.end()) throw std::runtime_error("no template " + std::string(name));
  return found->text;
}

/// All of the conversation by `jinja`.
inline WrittenChat written_by_jinja(const jinja::Template& jinja, const data::Conversation& talk,
                                    bool with_prompt, const std::string& bos,
                                    const std::string& eos,
                                    Arguments arguments = Arguments::as_values) {
  jinja::Mapping names;
  std::vector<jinja::Value> messages, tools;
  for (const data::ChatMessage& message : talk.messages)
    messages.push_back(message_value(message, arguments));
  for (const std::string& tool : talk.tools)
    tools.push_back(json_value(tool));
  names.set("messages", std::move(messages));
  if (!tools.empty()) names.set("tools", std::move(tools));
  names.set("add_generation_prompt", with_prompt);
  if (!bos.empty()) names.set("bos_token", bos);
  names.set("eos_token", eos);
  try {
    jinja::Rendered rendered = jinja.render(names, 0);
    return {std::move(rendered.text), joined_ranges(rendered.generations)};
  } catch (const jinja::Refusal& refusal) {
    return {.refusal = refusal.what()};
  }
}

}  // namespace finetune::tests
