// SPDX-License-Identifier: Apache-2.0
#include "data/text/chat_template.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/error.hpp"
#include "data/text/detail/chat_writer.hpp"

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

}  // namespace

Rendered render(const ChatTemplate& chat, const Conversation& conversation, TrainOn train_on,
                const std::string& where) {
  require_messages(conversation, where);
  const auto last =
      std::find_if(conversation.messages.rbegin(), conversation.messages.rend(), is_answer);
  const bool ends_early = train_on == TrainOn::answers && last != conversation.messages.rend() &&
                          last != conversation.messages.rbegin();
  Rendered rendered;
  if (ends_early) {
    Conversation first = conversation;
    first.messages.erase(first.messages.begin() + (last.base() - conversation.messages.begin()),
                         first.messages.end());
    rendered = chat.writer->render(first, where);
  } else {
    rendered = chat.writer->render(conversation, where);
  }
  if (train_on == TrainOn::all)
    for (Segment& segment : rendered.segments)
      segment.trained = true;
  return rendered;
}

std::vector<Segment> render_prompt(const ChatTemplate& chat, const Conversation& conversation,
                                   const std::string& where) {
  require_messages(conversation, where);
  return chat.writer->prompt(conversation, where);
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

}  // namespace finetune::data
