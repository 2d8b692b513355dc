#pragma once
// SPDX-License-Identifier: Apache-2.0
// One conversation by a template: its text, and what of it is trained.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/text/conversation.hpp"
#include "data/text/detail/answer_places.hpp"
#include "data/text/detail/chat_writer.hpp"
#include "jinja/template.hpp"

namespace finetune::data {

/// One conversation, written whole and up to each answer.
class ChatWriter::Writing {
 public:
  Writing(const ChatWriter& chat, const Conversation& conversation, std::int64_t now_s,
          const std::string& where);

  /// Both throw: as ChatWriter::render.
  jinja::Rendered whole() const { return written(messages_, Prompt::none); }
  jinja::Rendered prompt() const { return written(messages_, Prompt::for_answer); }

  /// Whether message i is an answer that is to be trained.
  bool is_trained(std::int32_t i) const {
    return i != jinja::Origin::none && message(i).role == ChatRole::assistant && message(i).trained;
  }

  /// Of a turn; "template" where it is of no message.
  std::string role(std::int32_t i) const;

  /// What of `whole` is trained. A token that ends the last answer and is not there is appended.
  std::vector<TrainedRange> trained(jinja::Rendered& whole) const;

  /// Bits of Oddity of what the template did not write.
  std::uint32_t oddities(const jinja::Rendered& whole) const;

 private:
  const ChatMessage& message(std::int32_t i) const {
    return conversation_.messages[static_cast<std::size_t>(i)];
  }

  enum class Prompt { none, for_answer };

  /// Refuses names of template_kwargs that this program gives.
  void require_free(const std::string& name) const;

  jinja::Mapping names(std::vector<jinja::Value> messages, Prompt prompt) const;

  /// What a template of this program refuses, with the model's own as the remedy where that has
  /// what it lacks. Written once more for that: a conversation that is written costs nothing.
  std::string refused(const jinja::Refusal& refusal, jinja::Mapping names) const;

  jinja::Rendered written(std::vector<jinja::Value> messages, Prompt prompt) const;

  std::vector<jinja::Value> first(std::int32_t num) const {
    return {messages_.begin(), messages_.begin() + num};
  }

  /// The prompt for message i; nothing where the template refuses to write the messages before it
  /// alone.
  std::optional<AnswerPrompt> prompt_of(std::int32_t i, const jinja::Rendered& whole) const;

  /// What the prompt for any answer writes behind a question: for a first message that answers
  /// nothing, where the template does not write no messages at all.
  std::optional<AnswerPrompt> prompt_behind_question() const;

  /// See answer_parts.
  std::vector<Range> parts_of(const jinja::Rendered& rendered, std::int32_t i,
                              const std::optional<AnswerPrompt>& prompt) const;

  /// Adds where message i is trained.
  void answer(jinja::Rendered& whole, std::int32_t i, std::vector<TrainedRange>& ranges) const;

  /// Places the ends of an empty answer where they would be if it said something.
  void end_empty(const jinja::Rendered& whole, std::int32_t i, std::size_t turn_end,
                 AnswerPlace& place) const;

  /// The token behind an answer whose own turn, which ends at byte `at`, ends with none that is
  /// known: of the next turn, or what a next message would let the template write.
  std::optional<Range> next_end(jinja::Rendered& whole, std::int32_t i, std::size_t at,
                                const AnswerPlace& place) const;

  /// What ends the last answer, message i, if another message follows, and is not there without.
  std::string end_if_longer(const jinja::Rendered& whole, std::int32_t i,
                            const AnswerPlace& place) const;

  /// Whether what message i says stands in turns of others, and not in its own.
  bool is_written_elsewhere(const jinja::Rendered& whole, std::int32_t i) const;

  [[noreturn]] void refuse_unclear(const jinja::Rendered& whole, std::int32_t i,
                                   const std::vector<Range>& turn) const;

  /// Adds what the template marks.
  void marked(const jinja::Rendered& whole, std::vector<TrainedRange>& ranges) const;

  bool is_answer(std::int32_t i) const {
    return i != jinja::Origin::none && message(i).role == ChatRole::assistant;
  }

  const ChatWriter& chat_;
  const jinja::Template& template_;
  const Conversation& conversation_;
  std::int64_t now_s_;
  const std::string& where_;
  std::vector<jinja::Value> messages_;
  jinja::Value tools_;
};

}  // namespace finetune::data
