// SPDX-License-Identifier: Apache-2.0
#include "data/text/chat_template.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "core/error.hpp"
#include "core/text.hpp"
#include "data/records/records.hpp"
#include "data/text/detail/chat_writer.hpp"
#include "data/text/detail/roles.hpp"
#include "deck/suggest.hpp"

namespace finetune::data {
namespace {

void require_messages(const Conversation& conversation, const std::string& where) {
  if (!conversation.messages.empty()) return;
  core::fail(core::ErrorKind::input, {where, "the conversation has no message",
                                      "there is nothing to learn from it", "Remove this sample."});
}

bool is_answer(const ChatMessage& message) {
  return message.role == ChatRole::assistant;
}

/// `conversation`, or `changed`, which is it with the names that `chat` is to be given.
const Conversation& with_kwargs(const ChatTemplate& chat, const Conversation& conversation,
                                Conversation& changed) {
  if (chat.kwargs.empty()) return conversation;
  changed = conversation;
  add_template_kwargs(chat.kwargs, changed);
  return changed;
}

/// The conversation without the messages after the last answer; nothing if all are needed.
std::optional<Conversation> up_to_last_answer(const Conversation& conversation, TrainOn train_on) {
  const auto& messages = conversation.messages;
  const auto last = std::find_if(messages.rbegin(), messages.rend(), is_answer);
  if (train_on == TrainOn::all || last == messages.rend() || last == messages.rbegin())
    return std::nullopt;
  Conversation first = conversation;
  first.messages.resize(static_cast<std::size_t>(last.base() - messages.begin()));
  return first;
}

}  // namespace

void settle_whole(const ChatTemplate& chat, const std::string& where, const std::string& why,
                  const std::string& remedy, Conversation& conversation) {
  require_messages(conversation, where);
  add_template_kwargs(chat.kwargs, conversation);
  if (const auto left_out = settle_roles(chat, TrainOn::all, where, conversation))
    core::fail(core::ErrorKind::input, {where, *left_out, why, remedy});
}

Rendered render(const ChatTemplate& chat, const Conversation& given, TrainOn train_on,
                const std::string& where) {
  Conversation changed;
  const Conversation& conversation = with_kwargs(chat, given, changed);
  require_messages(conversation, where);
  const auto first = up_to_last_answer(conversation, train_on);
  Rendered rendered = chat.writer->render(first ? *first : conversation, where);
  if (train_on == TrainOn::all)
    for (Segment& segment : rendered.segments)
      segment.trained = true;
  return rendered;
}

std::vector<WrittenTurn> render_turns(const ChatTemplate& chat, const Conversation& given,
                                      TrainOn train_on, const std::string& where) {
  Conversation changed;
  const Conversation& conversation = with_kwargs(chat, given, changed);
  require_messages(conversation, where);
  const auto first = up_to_last_answer(conversation, train_on);
  return chat.writer->turns(first ? *first : conversation, where);
}

std::string in_words(const ChatTemplate& chat) {
  if (chat.file.empty()) return fmt::format("the template \"{}\" of this program", chat.name);
  const std::string which =
      chat.own_name.empty() ? "" : fmt::format(" \"{}\"", core::one_line(chat.own_name));
  std::string words = fmt::format("{} template{}, {}", chat.name, which, chat.file);
  if (!chat.for_tools.empty())
    words += chat.tools_file == chat.file
                 ? ", and by its \"tool_use\" where tools are on offer"
                 : fmt::format(", and by {} where tools are on offer", chat.tools_file);
  return words;
}

std::vector<std::string> unread_names(const ChatTemplate& chat, const core::OrderedJson& kwargs) {
  const std::vector<std::string> read = chat.writer->names();
  std::vector<std::string> lines;
  for (const auto& [name, value] : kwargs.items()) {
    if (std::ranges::find(read, name) != read.end()) continue;
    const auto meant = deck::closest(name, read);
    lines.push_back(fmt::format("the chat template does not read \"{}\", so it changes nothing{}",
                                core::one_line(name),
                                meant ? fmt::format(" (did you mean \"{}\"?)", *meant) : "") +
                    ".");
  }
  return lines;
}

std::vector<Segment> render_prompt(const ChatTemplate& chat, const Conversation& conversation,
                                   const std::string& where) {
  require_messages(conversation, where);
  Conversation changed;
  return chat.writer->prompt(with_kwargs(chat, conversation, changed), where);
}

std::string without_marks(std::string text) {
  for (const std::string_view name : {"generation", "endgeneration"}) {
    for (std::size_t at = 0; (at = text.find("{%", at)) != std::string::npos; at += 2) {
      const std::size_t end = text.find("%}", at);
      if (end == std::string::npos) break;
      std::string_view inside = std::string_view(text).substr(at + 2, end - at - 2);
      const auto is_outside = [](char c) { return c == ' ' || c == '-' || c == '+'; };
      while (!inside.empty() && is_outside(inside.front()))
        inside.remove_prefix(1);
      while (!inside.empty() && is_outside(inside.back()))
        inside.remove_suffix(1);
      if (inside != name) continue;
      text[at + 1] = '#';
      text[end] = '#';
    }
  }
  return text;
}

std::string with_defaults(const std::string& text, const core::OrderedJson& kwargs) {
  std::string defaults;
  try {
    const auto read = jinja::Template::parse(text);
    for (const auto& [name, value] : kwargs.items())
      if (read.reads(name))
        defaults += fmt::format("{{% if {} is not defined %}}{{% set {} = {} %}}{{% endif %}}",
                                name, name, dump_json(value));
  } catch (const jinja::Problem&) {
    return text;
  }
  // The line's end belongs to the tag: `text` goes on as the beginning of a line.
  return defaults.empty() ? text : defaults + "\n" + text;
}

}  // namespace finetune::data
