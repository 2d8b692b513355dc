// SPDX-License-Identifier: Apache-2.0
#include "data/text/detail/roles.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <exception>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/text.hpp"
#include "data/text/detail/chat_writer.hpp"
#include "data/text/detail/message_values.hpp"

namespace finetune::data {
namespace {

using Roles = std::vector<std::string>;

bool is_usual(const ChatMessage& message) {
  if (message.role == ChatRole::other) return false;
  const auto found = message.fields.find("role");
  if (found == message.fields.end()) return true;
  const auto* text = found->get_ptr<const std::string*>();
  return text != nullptr && *text == name_of(message.role);
}

/// One of a role that is not known keeps its calls in its fields.
bool says_nothing(const ChatMessage& message) {
  return is_empty(message) &&
         !(message.role == ChatRole::other && message.fields.contains("tool_calls"));
}

bool has(const Roles& roles, const std::string& role) {
  return std::ranges::find(roles, role) != roles.end();
}

/// The roles that are not usual, each once.
Roles unusual_roles(const Conversation& conversation) {
  Roles roles;
  for (const ChatMessage& message : conversation.messages)
    if (!is_usual(message) && !has(roles, shown_role(message)))
      roles.push_back(shown_role(message));
  return roles;
}

/// What answers something that was left out is not to be learned as an answer to the rest.
void train_none_from(std::size_t first, Conversation& conversation) {
  for (std::size_t i = first; i < conversation.messages.size(); ++i)
    if (conversation.messages[i].role == ChatRole::assistant)
      conversation.messages[i].trained = false;
}

struct Settled {
  Conversation conversation;
  std::optional<std::string> left_out = {};
};

std::string left_out(std::size_t number, const ChatMessage& message, const std::string& why) {
  return fmt::format("message {} has the role \"{}\", which {}", number,
                     core::one_line(core::first_bytes(shown_role(message), 100)), why);
}

/// The conversation with the roles that those of `roles` stand for, without the messages of those
/// that stand for none; `why`: what the template does with them.
Settled without(const Conversation& conversation, const Roles& roles, const std::string& why) {
  Settled settled{conversation};
  auto& messages = settled.conversation.messages;
  messages.clear();
  std::size_t number = 0;
  for (const ChatMessage& message : conversation.messages) {
    ++number;
    if (is_usual(message) || !has(roles, shown_role(message))) {
      messages.push_back(message);
    } else if (message.role != ChatRole::other) {
      messages.push_back(message);
      messages.back().fields["role"] = name_of(message.role);
    } else {
      if (!settled.left_out) settled.left_out = left_out(number, message, why);
      continue;
    }
    if (settled.left_out && message.role == ChatRole::assistant) messages.back().trained = false;
  }
  return settled;
}

void end_with_answer(Conversation& conversation) {
  auto& messages = conversation.messages;
  const auto last =
      std::find_if(messages.rbegin(), messages.rend(),
                   [](const ChatMessage& message) { return message.role == ChatRole::assistant; });
  if (last != messages.rend()) messages.erase(last.base(), messages.end());
}

/// Conversations for a model's own template.
class OwnTemplate {
 public:
  OwnTemplate(const ChatWriter& writer, const std::string& where)
      : writer_(writer), where_(where) {}

  /// The conversation with as few other roles as the template writes.
  Settled settle(const Conversation& conversation) const {
    const Roles roles = unusual_roles(conversation);
    // Each alone, each two, ...: of more than four all or none.
    const std::size_t all = roles.size() > 4 ? 1 : (std::size_t{1} << roles.size()) - 1;
    const auto chosen = [&](std::size_t set) {
      if (roles.size() > 4) return set == 0 ? Roles() : roles;
      Roles some;
      for (std::size_t r = 0; r < roles.size(); ++r)
        if ((set >> r & 1) != 0) some.push_back(roles[r]);
      return some;
    };
    std::vector<std::size_t> sets(all + 1);
    for (std::size_t s = 0; s <= all; ++s)
      sets[s] = s;
    std::ranges::stable_sort(sets, {}, [](std::size_t set) { return std::popcount(set); });
    std::exception_ptr refusal;
    for (const std::size_t set : sets) {
      Settled tried = without(conversation, chosen(set), "the chat template refuses");
      if (tried.conversation.messages.empty()) continue;
      try {
        return completed(std::move(tried));
      } catch (const core::Error&) {
        // As long as nothing was left out it says what is wrong with the whole conversation.
        if (!refusal || !tried.left_out) refusal = std::current_exception();
      }
    }
    std::rethrow_exception(refusal);
  }

 private:
  jinja::Rendered written(const Conversation& conversation) const {
    return writer_.written(conversation, where_);
  }

  static bool is_written(const jinja::Rendered& text, std::size_t message) {
    return std::ranges::any_of(text.pieces, [&](const jinja::Piece& piece) {
      return piece.origin.is_data() && piece.origin.element == static_cast<std::int32_t>(message);
    });
  }

  /// The roles of messages that say something, nothing of which is written.
  static Roles unwritten_roles(const Conversation& conversation, const jinja::Rendered& text) {
    Roles roles;
    for (std::size_t i = 0; i < conversation.messages.size(); ++i) {
      const ChatMessage& message = conversation.messages[i];
      if (is_usual(message) || says_nothing(message) || is_written(text, i)) continue;
      roles.push_back(shown_role(message));
    }
    return roles;
  }

  /// Whether the text, but for white space, is that of the conversation without message i.
  bool changes_nothing(const Conversation& conversation, const jinja::Rendered& text,
                       std::size_t i) const {
    Conversation rest = conversation;
    rest.messages.erase(rest.messages.begin() + static_cast<std::ptrdiff_t>(i));
    if (rest.messages.empty()) return false;
    const auto black = [](std::string all) {
      std::erase_if(all, [](char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; });
      return all;
    };
    try {
      return black(written(rest).text) == black(text.text);
    } catch (const core::Error&) {
      return false;
    }
  }

  Settled completed(Settled tried) const {
    jinja::Rendered text = written(tried.conversation);
    Roles unwritten = unwritten_roles(tried.conversation, text);
    if (unwritten.empty()) return tried;
    const auto with_usual = by_usual_roles(tried.conversation, unwritten);
    if (with_usual) {
      tried.conversation = *with_usual;
      text = written(tried.conversation);
    }
    auto& messages = tried.conversation.messages;
    for (std::size_t i = 0; i < messages.size(); ++i) {
      if (messages[i].role != ChatRole::other || says_nothing(messages[i]) || is_written(text, i) ||
          !changes_nothing(tried.conversation, text, i))
        continue;
      train_none_from(i, tried.conversation);
      if (!tried.left_out)
        tried.left_out = left_out(i + 1, messages[i], "the chat template does not write");
    }
    return tried;
  }

  /// With the roles that those of `roles` stand for; nothing if the template does not write what
  /// they say then either.
  std::optional<Conversation> by_usual_roles(const Conversation& conversation,
                                             const Roles& roles) const {
    Conversation usual = conversation;
    std::vector<std::size_t> changed;
    for (std::size_t i = 0; i < usual.messages.size(); ++i) {
      ChatMessage& message = usual.messages[i];
      if (is_usual(message) || message.role == ChatRole::other || !has(roles, shown_role(message)))
        continue;
      message.fields["role"] = name_of(message.role);
      changed.push_back(i);
    }
    if (changed.empty()) return std::nullopt;
    try {
      const jinja::Rendered text = written(usual);
      const auto is_there = [&](std::size_t i) {
        return is_empty(usual.messages[i]) || is_written(text, i);
      };
      return std::ranges::all_of(changed, is_there) ? std::optional(usual) : std::nullopt;
    } catch (const core::Error&) {
      return std::nullopt;
    }
  }

  const ChatWriter& writer_;
  const std::string& where_;
};

}  // namespace

std::optional<std::string> settle_roles(const ChatTemplate& chat, TrainOn train_on,
                                        const std::string& where, Conversation& conversation) {
  if (std::ranges::all_of(conversation.messages, is_usual)) return std::nullopt;
  if (train_on == TrainOn::answers) end_with_answer(conversation);
  Settled settled;
  if (chat.writer->is_known()) {
    settled = without(conversation, unusual_roles(conversation),
                      fmt::format("data.template = \"{}\" does not know", chat.name));
    if (settled.conversation.messages.empty())
      core::fail(core::ErrorKind::input,
                 {where, "the conversation has no message",
                  "the roles of all its messages are unknown", "Remove this sample."});
  } else {
    settled = OwnTemplate(*chat.writer, where).settle(conversation);
  }
  conversation = std::move(settled.conversation);
  return settled.left_out;
}

}  // namespace finetune::data
