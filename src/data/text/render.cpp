// SPDX-License-Identifier: Apache-2.0
// A conversation with the markup of a chat template.
#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "core/error.hpp"
#include "data/text/chat_template.hpp"
#include "data/text/detail/model_chat.hpp"
#include "data/text/detail/white_space.hpp"
#include "data/text/source.hpp"

namespace finetune::data {
namespace {

using Markup = ChatTemplate::Markup;

void add_bit(std::uint32_t& oddities, Oddity oddity) {
  oddities |= static_cast<std::uint32_t>(oddity);
}

std::string_view stripped(std::string_view text, const std::string& how) {
  return how == "both" ? strip(text) : text;
}

/// Drops the white space at both ends of what the segments hold together.
void strip_ends(std::vector<Segment>& segments) {
  for (Segment& segment : segments) {
    segment.text = std::string(strip_left(segment.text));
    if (!segment.text.empty()) break;
  }
  for (auto segment = segments.rbegin(); segment != segments.rend(); ++segment) {
    segment->text = std::string(strip_right(segment->text));
    if (!segment->text.empty()) break;
  }
}

/// Writes one conversation.
class Writer {
 public:
  Writer(const ChatTemplate& chat, const std::vector<std::string>& tools,
         std::span<const ChatMessage> messages, const std::string& where)
      : chat_(chat), tools_(tools), messages_(messages), where_(where) {
    const auto is_user = [](const ChatMessage& message) { return message.role == ChatRole::user; };
    const auto first = std::find_if(messages.begin(), messages.end(), is_user);
    first_user_ = static_cast<std::size_t>(first - messages.begin());
    last_user_ = messages.size();
    last_query_ = messages.size();
    for (std::size_t i = 0; i < messages.size(); ++i) {
      if (!is_user(messages[i])) continue;
      last_user_ = i;
      // A user's message in the form of a function's result is one.
      const std::string& text = messages[i].text;
      if (!text.starts_with("<tool_response>") || !text.ends_with("</tool_response>"))
        last_query_ = i;
    }
  }

  Rendered write() {
    require_turns();
    markup(chat_.begin);
    const bool has_system = !messages_.empty() && messages_.front().role == ChatRole::system;
    system_ = has_system ? std::string(stripped(messages_.front().text, chat_.system.strip))
                         : chat_.system_default;
    has_system_ = has_system || !system_.empty();
    if (chat_.system_place == "message") system_message();
    for (std::size_t i = has_system ? 1 : 0; i < messages_.size(); ++i)
      message(i);
    return std::move(rendered_);
  }

 private:
  void add(std::string_view text, bool trained, bool is_markup) {
    if (!text.empty()) rendered_.segments.push_back({std::string(text), trained, is_markup});
  }
  void markup(std::string_view text) { add(text, false, true); }

  [[noreturn]] void refuse(const std::string& problem, const std::string& why,
                           const std::string& remedy) const {
    core::fail(core::ErrorKind::input, {where_, problem, why, remedy});
  }

  /// "message 3 (user)".
  std::string nth(std::size_t i) const {
    return fmt::format("message {} ({})", i + 1, name_of(messages_[i].role));
  }

  void require_turns() const {
    const std::size_t begin =
        !messages_.empty() && messages_.front().role == ChatRole::system ? 1 : 0;
    for (std::size_t i = begin; i < messages_.size(); ++i) {
      const ChatRole role = messages_[i].role;
      const std::string has_not = fmt::format("the chat template \"{}\" has ", chat_.name);
      if (role == ChatRole::system && !chat_.later_system.is_known) {
        refuse(nth(i) + " is not the first", has_not + "one system message, at the start",
               "Move it there, or choose another data.template.");
      }
      if ((role == ChatRole::tool && !chat_.tool.is_known) ||
          (!messages_[i].calls.empty() && !chat_.call.is_known)) {
        refuse(nth(i) + " belongs to a call of a function", has_not + "no markup for that",
               "Choose a data.template with tools (qwen2.5, qwen3), or remove such samples.");
      }
      if (!messages_[i].reasoning.empty() && !chat_.thinks) {
        refuse(nth(i) + " holds reasoning", has_not + "no markup for that",
               "Choose a data.template that thinks (qwen3), or remove the reasoning.");
      }
      if (!chat_.alternates) continue;
      const ChatRole wanted = (i - begin) % 2 == 0 ? ChatRole::user : ChatRole::assistant;
      if (role != wanted) {
        refuse(fmt::format("{} stands where {} should speak", nth(i), name_of(wanted)),
               fmt::format("in the chat template \"{}\" user and assistant take turns, the user "
                           "first",
                           chat_.name),
               "Correct or remove this conversation, or choose another data.template.");
      }
    }
    if (!tools_.empty() && !chat_.offer.is_known) {
      refuse("the sample offers functions",
             fmt::format("the chat template \"{}\" has no markup for that", chat_.name),
             "Choose a data.template with tools (qwen2.5, qwen3), or remove such samples.");
    }
  }

  void system_message() {
    if (!has_system_ && !chat_.system_always && tools_.empty()) return;
    markup(chat_.system.before);
    markup(chat_.system_prefix);
    add(system_, false, false);
    if (!tools_.empty()) offer();
    markup(chat_.system.after);
  }

  void offer() {
    if (has_system_) markup(chat_.offer_separator);
    markup(chat_.offer.before);
    for (const std::string& tool : tools_) {
      markup(chat_.offer_each);
      add(tool, false, false);
    }
    markup(chat_.offer.after);
  }

  void message(std::size_t i) {
    switch (messages_[i].role) {
      case ChatRole::system:
        return plain(messages_[i], chat_.later_system);
      case ChatRole::user:
        return user(i);
      case ChatRole::assistant:
        return assistant(i);
      case ChatRole::tool:
        return tool(i);
    }
  }

  void plain(const ChatMessage& message, const Markup& around) {
    markup(around.before);
    add(stripped(message.text, around.strip), false, false);
    markup(around.after);
  }

  void user(std::size_t i) {
    const bool here = (chat_.system_place == "first_user" && i == first_user_) ||
                      (chat_.system_place == "last_user" && i == last_user_);
    if (!here || !has_system_) return plain(messages_[i], chat_.user);
    std::vector<Segment> inner = {{chat_.system.before, false, true},
                                  {system_, false, false},
                                  {chat_.system.after, false, true},
                                  {messages_[i].text, false, false}};
    if (chat_.user.strip == "both") strip_ends(inner);
    markup(chat_.user.before);
    for (const Segment& segment : inner)
      add(segment.text, false, segment.markup);
    markup(chat_.user.after);
  }

  void tool(std::size_t i) {
    const auto is_tool = [&](std::size_t j) { return messages_[j].role == ChatRole::tool; };
    if (i == 0 || !is_tool(i - 1)) markup(chat_.tool_run_before);
    plain(messages_[i], chat_.tool);
    if (i + 1 == messages_.size() || !is_tool(i + 1)) markup(chat_.tool_run_after);
  }

  void assistant(std::size_t i) {
    const ChatMessage& message = messages_[i];
    const std::string text(stripped(message.text, chat_.assistant.strip));
    if (is_empty(message)) add_bit(rendered_.oddities, Oddity::empty_answer);
    const bool trained = message.trained && !is_empty(message);
    markup(chat_.prompt);
    add(chat_.assistant.before, trained, true);
    const std::string said = chat_.thinks ? thought(i, text, trained) : text;
    add(said, trained, false);
    calls(message, !said.empty(), trained);
    // An empty answer still teaches that the turn ends there.
    const std::size_t end = chat_.assistant.after.find(chat_.stop) + chat_.stop.size();
    add(std::string_view(chat_.assistant.after).substr(0, end), message.trained, true);
    markup(std::string_view(chat_.assistant.after).substr(end));
  }

  /// Writes the reasoning of an answer, if it is written, and returns the rest of the answer.
  std::string thought(std::size_t i, const std::string& text, bool trained) {
    std::string reasoning = messages_[i].reasoning;
    std::string said = text;
    const std::size_t first = text.find("</think>");
    if (reasoning.empty() && first != std::string::npos) {
      reasoning = strip_right(std::string_view(text).substr(0, first), "\n");
      if (const std::size_t open = reasoning.rfind("<think>"); open != std::string::npos)
        reasoning.erase(0, open + 7);
      reasoning = std::string(strip_left(reasoning, "\n"));
      said = strip_left(std::string_view(text).substr(text.rfind("</think>") + 8), "\n");
    }
    const bool is_recent = last_query_ < messages_.size() && i > last_query_;
    if (!is_recent || (i + 1 < messages_.size() && reasoning.empty())) return said;
    add(chat_.think_open, trained, true);
    add(strip_right(strip_left(reasoning, "\n"), "\n"), trained, false);
    add(chat_.think_close, trained, true);
    return std::string(strip_left(said, "\n"));
  }

  void calls(const ChatMessage& message, bool after_text, bool trained) {
    for (const ToolCall& call : message.calls) {
      if (after_text) add(chat_.call_separator, trained, true);
      after_text = true;
      add(chat_.call.before, trained, true);
      add(call.name, trained, false);
      add(chat_.call_middle, trained, true);
      add(call.arguments, trained, false);
      add(chat_.call.after, trained, true);
    }
  }

  const ChatTemplate& chat_;
  const std::vector<std::string>& tools_;
  std::span<const ChatMessage> messages_;
  const std::string& where_;
  Rendered rendered_;
  std::size_t first_user_ = 0;
  std::size_t last_user_ = 0;
  std::size_t last_query_ = 0;  // the last question of a user; the number of messages if none
  std::string system_;
  bool has_system_ = false;
};

void require_messages(const Conversation& conversation, const std::string& where) {
  if (!conversation.messages.empty()) return;
  core::fail(core::ErrorKind::input, {where, "the conversation has no message",
                                      "there is nothing to learn from it", "Remove this sample."});
}

/// By the model's own template.
Rendered write_as_model(const ChatTemplate& chat, const Conversation& conversation,
                        std::span<const ChatMessage> messages, const std::string& where) {
  const Conversation own{
      {messages.begin(), messages.end()}, conversation.tools, conversation.template_kwargs};
  return chat.model->render(own, where);
}

}  // namespace

Rendered render(const ChatTemplate& chat, const Conversation& conversation, TrainOn train_on,
                const std::string& where) {
  require_messages(conversation, where);
  std::span<const ChatMessage> messages = conversation.messages;
  const auto answers = [](const ChatMessage& message) {
    return message.role == ChatRole::assistant;
  };
  if (train_on == TrainOn::answers && std::any_of(messages.begin(), messages.end(), answers)) {
    while (!answers(messages.back()))
      messages = messages.first(messages.size() - 1);
  }
  Rendered rendered = chat.model ? write_as_model(chat, conversation, messages, where)
                                 : Writer(chat, conversation.tools, messages, where).write();
  if (train_on == TrainOn::all) {
    for (Segment& segment : rendered.segments)
      segment.trained = true;
  }
  return rendered;
}

std::vector<Segment> render_prompt(const ChatTemplate& chat, const Conversation& conversation,
                                   const std::string& where) {
  require_messages(conversation, where);
  if (chat.model) return chat.model->prompt(conversation, where);
  Rendered rendered = Writer(chat, conversation.tools, conversation.messages, where).write();
  if (!chat.prompt.empty()) rendered.segments.push_back({chat.prompt, false, true});
  return std::move(rendered.segments);
}

}  // namespace finetune::data
