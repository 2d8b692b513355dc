// SPDX-License-Identifier: Apache-2.0
#include "data/text/detail/chat_writing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "core/error.hpp"
#include "core/text.hpp"
#include "data/text/detail/message_values.hpp"
#include "data/text/detail/white_space.hpp"
#include "data/text/source.hpp"

namespace finetune::data {

using jinja::Origin;
using jinja::Value;

namespace {

std::string text_at(const jinja::Rendered& whole, const std::vector<Range>& ranges) {
  std::string text;
  for (const auto& [begin, end] : ranges)
    text += whole.text.substr(begin, end - begin);
  return core::one_line(core::first_bytes(text, 400));
}

}  // namespace

ChatWriter::Writing::Writing(const ChatWriter& chat, const Conversation& conversation,
                             std::int64_t now_s, const std::string& where)
    : chat_(chat),
      template_(chat.template_of(conversation)),
      conversation_(conversation),
      now_s_(now_s),
      where_(where),
      messages_(message_values(conversation)),
      tools_(tool_values(conversation)) {}

std::string ChatWriter::Writing::role(std::int32_t i) const {
  const bool is_message = i >= 0 && i < std::ssize(conversation_.messages);
  if (!is_message) return "template";
  return core::one_line(core::first_bytes(shown_role(message(i)), 100));
}

std::vector<TrainedRange> ChatWriter::Writing::trained(jinja::Rendered& whole) const {
  std::vector<TrainedRange> ranges;
  if (template_.has_generation()) {
    marked(whole, ranges);
  } else {
    for (std::int32_t i = 0; i < std::ssize(conversation_.messages); ++i)
      if (is_trained(i)) answer(whole, i, ranges);
    std::ranges::sort(ranges);  // Whatever order messages are written in.
  }
  return ranges;
}

std::uint32_t ChatWriter::Writing::oddities(const jinja::Rendered& whole) const {
  std::uint32_t bits = 0;
  for (std::int32_t i = 0; i < std::ssize(conversation_.messages); ++i) {
    if (!is_trained(i)) continue;
    const auto lacks = [&](Said said) {
      return std::ranges::none_of(whole.pieces, [&](const jinja::Piece& piece) {
        return piece.origin.element == i && piece.origin.field == static_cast<std::uint8_t>(said);
      });
    };
    if (is_empty(message(i))) bits |= static_cast<std::uint32_t>(Oddity::empty_answer);
    const bool says_text = !strip(message(i).text).empty();
    if ((says_text && lacks(Said::content)) ||
        (!message(i).reasoning.empty() && lacks(Said::reasoning)) ||
        (!message(i).calls.empty() && lacks(Said::call)))
      bits |= static_cast<std::uint32_t>(Oddity::not_written);
  }
  return bits;
}

void ChatWriter::Writing::require_free(const std::string& name) const {
  constexpr std::array<std::string_view, 7> own = {"messages",
                                                   "tools",
                                                   "documents",
                                                   "add_generation_prompt",
                                                   "is_training_data",
                                                   "own_writes_calls",
                                                   "own_writes_reasoning"};
  if (std::ranges::find(own, name) == own.end()) return;
  core::fail(core::ErrorKind::input,
             {where_,
              fmt::format("the chat template is to be given \"{}\" by a name of the data or of "
                          "data.template_kwargs",
                          name),
              "this program gives it", "Remove this name."});
}

jinja::Mapping ChatWriter::Writing::names(std::vector<Value> messages, Prompt prompt) const {
  jinja::Mapping names;
  const auto set = [&](const char* name, Value value) { names.set(name, std::move(value)); };
  set("messages", std::move(messages));
  set("tools", tools_);
  set("documents", Value());
  set("add_generation_prompt", prompt == Prompt::for_answer);
  if (!chat_.names_.bos.empty()) set("bos_token", chat_.names_.bos);
  if (!chat_.names_.eos.empty()) set("eos_token", chat_.names_.eos);
  for (const auto& [name, token] : chat_.names_.others.items())
    names.set(name, Value::from_json(token));
  // Templates of this program refuse then what they would leave out.
  if (chat_.names_.is_known) set("is_training_data", prompt == Prompt::none);
  for (const auto& [name, value] : conversation_.template_kwargs.items()) {
    require_free(name);
    names.set(name, Value::from_json(value));
  }
  return names;
}

std::string ChatWriter::Writing::refused(const jinja::Refusal& refusal,
                                         jinja::Mapping names) const {
  const auto advise = [&](const char* name, const char* what, const auto&... words) {
    if (((chat_.names_.own.find(words) == std::string::npos) && ...)) return;
    names.set(name, fmt::format("Leave data.template out or set it to \"model\", as the model has "
                                "a template of its own that writes {}",
                                what));
  };
  advise("own_writes_calls", "calls", "tool_calls");
  advise("own_writes_reasoning", "reasoning", "reasoning_content", "thinking");
  try {
    template_.render(names, now_s_);
  } catch (const jinja::Refusal& advised) {
    return advised.what();
  }
  return refusal.what();
}

jinja::Rendered ChatWriter::Writing::written(std::vector<Value> messages, Prompt prompt) const {
  const jinja::Mapping given = names(std::move(messages), prompt);
  try {
    jinja::Rendered rendered = template_.render(given, now_s_);
    complete_turns(rendered);
    return rendered;
  } catch (const jinja::Refusal& refusal) {
    if (chat_.names_.is_known)
      throw core::Error(core::ErrorKind::input, where_ + ": " + refused(refusal, given));
    std::string said = refusal.what();
    if (said.ends_with('.') || said.ends_with('!')) said.pop_back();
    core::fail(core::ErrorKind::input,
               {where_, "the model's chat template refuses the conversation: " + said, "",
                "Correct or remove it, or choose another data.template."});
  } catch (const jinja::Problem& problem) {
    core::fail(
        core::ErrorKind::input,
        {where_,
         std::string("the model's chat template cannot write the conversation: ") + problem.what(),
         "", "Name a template of this program in data.template."});
  }
}

std::optional<AnswerPrompt> ChatWriter::Writing::prompt_of(std::int32_t i,
                                                           const jinja::Rendered& whole) const {
  try {
    const jinja::Rendered with = written(first(i), Prompt::for_answer);
    if (whole.text.starts_with(with.text)) return AnswerPrompt{{}, with.text.size()};
    std::string behind = behind_turns(with);
    const std::vector<Range> turn = turn_of(whole, i);
    const std::size_t begin = turn.empty() ? 0 : turn.front().first;
    const bool begins_alike = !behind.empty() && behind.front() == whole.text[begin];
    if (i == 0) {
      // Nothing is of a turn yet, neither what begins every conversation.
      const auto same = std::ranges::mismatch(behind, whole.text);
      behind.erase(0, std::min<std::size_t>(begin, same.in1 - behind.begin()));
    } else if (!begins_alike && template_.reads("add_generation_prompt")) {
      // It may stand in the turn of the last message, or behind what ends every conversation.
      const jinja::Rendered without = written(first(i), Prompt::none);
      if (with.text.starts_with(without.text)) behind = with.text.substr(without.text.size());
    }
    return AnswerPrompt{std::move(behind)};
  } catch (const core::Error&) {
    return i == 0 ? prompt_behind_question() : std::nullopt;
  }
}

std::optional<AnswerPrompt> ChatWriter::Writing::prompt_behind_question() const {
  jinja::Mapping question;
  question.element = static_cast<std::int32_t>(messages_.size());
  question.set("role", "user");
  question.set("content", "question");
  std::vector<Value> messages;
  messages.emplace_back(std::move(question));
  try {
    return AnswerPrompt{behind_turns(written(std::move(messages), Prompt::for_answer))};
  } catch (const core::Error&) {
    return std::nullopt;
  }
}

std::vector<Range> ChatWriter::Writing::parts_of(const jinja::Rendered& rendered, std::int32_t i,
                                                 const std::optional<AnswerPrompt>& prompt) const {
  return answer_parts(rendered, i, prompt, chat_.names_.ends, [&](std::int32_t other) {
    // Another message, which is not there, may be written behind the last.
    return other >= std::ssize(messages_) ||
           (message(other).role != ChatRole::assistant && message(other).role != ChatRole::tool);
  });
}

void ChatWriter::Writing::answer(jinja::Rendered& whole, std::int32_t i,
                                 std::vector<TrainedRange>& ranges) const {
  const std::optional<AnswerPrompt> prompt = prompt_of(i, whole);
  std::vector<Range> parts = parts_of(whole, i, prompt);
  const bool is_last = i + 1 == std::ssize(messages_);
  if (is_last && is_empty(message(i)) && turn_of(whole, i).empty() && prompt && prompt->end) {
    // It says nothing outside of any loop over messages.
    parts = {{*prompt->end, whole.text.size()}};
  } else if (is_written_elsewhere(whole, i)) {
    const std::optional<Range> elsewhere = answer_elsewhere(whole, i, prompt);
    if (!elsewhere) refuse_unclear(whole, i, turn_of(whole, i));
    parts = {*elsewhere};
  }
  if (parts.empty()) return;
  AnswerPlace place = place_answer(whole, i, parts, prompt, chat_.names_.ends);
  const std::size_t turn_end = parts.back().second;
  if (is_empty(message(i))) end_empty(whole, i, turn_end, place);
  std::optional<Range> next;
  if (place.ends_with != AnswerEnd::known) next = next_end(whole, i, turn_end, place);
  if (is_empty(message(i))) {
    // An empty answer still teaches that the turn ends there.
    if (next)
      ranges.push_back({*next, i});
    else if (place.ends_at < place.end)
      ranges.push_back({{place.ends_at, place.end}, i});
    return;
  }
  const std::size_t last = next ? turn_end : place.end;
  for (const auto& [first, end] : parts)
    if (std::max(first, place.begin) < std::min(end, last))
      ranges.push_back({{std::max(first, place.begin), std::min(end, last)}, i});
  if (next) ranges.push_back({*next, i});
}

void ChatWriter::Writing::end_empty(const jinja::Rendered& whole, std::int32_t i,
                                    std::size_t turn_end, AnswerPlace& place) const {
  Conversation talk = conversation_;
  ChatMessage& empty = talk.messages[static_cast<std::size_t>(i)];
  empty.text = "something";
  if (!empty.fields.is_null()) empty.fields["content"] = empty.text;
  try {
    const Writing said(chat_, talk, now_s_, where_);
    const jinja::Rendered other = said.whole();
    const std::vector<Range> parts = said.parts_of(other, i, std::nullopt);
    if (!parts.empty()) end_alike(other, i, parts, whole, turn_end, chat_.names_.ends, place);
  } catch (const core::Error&) {
    // Refused with text: it ends as it is written.
  }
}

std::optional<Range> ChatWriter::Writing::next_end(jinja::Rendered& whole, std::int32_t i,
                                                   std::size_t at, const AnswerPlace& place) const {
  const EndNames& ends = chat_.names_.ends;
  const bool has_special = place.ends_with == AnswerEnd::special;
  if (at < whole.text.size()) {
    const auto next = std::ranges::upper_bound(whole.pieces, at, {}, &jinja::Piece::end);
    const std::int32_t turn = next == whole.pieces.end() ? Origin::none : next->origin.turn;
    const bool is_of_others = turn != Origin::none && message(turn).role != ChatRole::assistant;
    return end_at(whole, at, ends,
                  is_of_others && !has_special ? NextEnd::any_special : NextEnd::known);
  }
  if (i + 1 != std::ssize(messages_)) return std::nullopt;
  const std::string end = end_if_longer(whole, i, place);
  if (end.empty()) return std::nullopt;
  whole.text += end;
  whole.pieces.push_back({whole.text.size(), {.turn = i}});
  return Range(at, whole.text.size());
}

std::string ChatWriter::Writing::end_if_longer(const jinja::Rendered& whole, std::int32_t i,
                                               const AnswerPlace& place) const {
  const EndNames& ends = chat_.names_.ends;
  const bool has_special = place.ends_with == AnswerEnd::special;
  jinja::Mapping next;
  next.element = i + 1;
  const auto& calls = message(i).calls;
  next.set("role", calls.empty() ? "user" : "tool");
  next.set("content", "next");
  if (!calls.empty()) {
    next.set("name", calls.back().name);
    next.set("tool_call_id", calls.back().id);
  }
  std::vector<Value> messages = messages_;
  messages.emplace_back(std::move(next));
  try {
    const jinja::Rendered longer = written(std::move(messages), Prompt::none);
    const std::vector<Range> parts = parts_of(longer, i, std::nullopt);
    if (parts.empty()) return {};
    const AnswerPlace own = place_answer(longer, i, parts, std::nullopt, ends);
    // Where nothing is said, a special token may be the turn's begin.
    const bool says = own.behind > own.begin;
    const bool ends_itself = own.ends_with == AnswerEnd::known ||
                             (own.ends_with == AnswerEnd::special && says && !has_special);
    if (ends_itself) {
      // The template leaves the end of the last turn out. Of one that says nothing there, what
      // stands in front of its end may be a header.
      if (!says) return longer.text.substr(own.ends_at, own.end - own.ends_at);
      const std::string here = whole.text.substr(place.behind),
                        there = longer.text.substr(own.behind, own.end - own.behind);
      return there.starts_with(here) ? there.substr(here.size()) : std::string();
    }
    const auto end = end_at(longer, parts.back().second, ends,
                            has_special ? NextEnd::known : NextEnd::any_special);
    return end ? longer.text.substr(end->first, end->second - end->first) : std::string();
  } catch (const core::Error&) {
    return {};
  }
}

bool ChatWriter::Writing::is_written_elsewhere(const jinja::Rendered& whole, std::int32_t i) const {
  bool is_elsewhere = false;
  for (const jinja::Piece& piece : whole.pieces) {
    const Origin& origin = piece.origin;
    if (origin.element != i || !origin.is_data()) continue;
    if (origin.turn == i || is_trained(origin.turn)) return false;
    is_elsewhere = true;
  }
  return is_elsewhere;
}

void ChatWriter::Writing::refuse_unclear(const jinja::Rendered& whole, std::int32_t i,
                                         const std::vector<Range>& turn) const {
  std::int32_t other = Origin::none;
  for (const jinja::Piece& piece : whole.pieces)
    if (piece.origin.element == i) other = piece.origin.turn;
  core::fail(core::ErrorKind::input,
             {where_, fmt::format("which tokens message {} (assistant) adds is not clear", i + 1),
              fmt::format("the model's chat template writes what it says elsewhere: in its own "
                          "turn {}, in {} \"{}\"",
                          turn.empty() ? "nothing" : '"' + text_at(whole, turn) + '"',
                          other == Origin::none ? std::string("no turn")
                                                : fmt::format("that of message {}", other + 1),
                          text_at(whole, turn_of(whole, other))),
              "Mark answers in the model's with {% generation %}, or name a template of this "
              "program in data.template."});
}

void ChatWriter::Writing::marked(const jinja::Rendered& whole,
                                 std::vector<TrainedRange>& ranges) const {
  std::size_t begin = 0;
  std::int32_t speaker = Origin::none;  // the last answer in this block
  for (const auto& [end, origin] : whole.pieces) {
    if (!origin.is_generation) speaker = Origin::none;
    if (is_answer(origin.element)) speaker = origin.element;
    // Where a template writes messages by pairs, an answer stands in the turn of its question.
    const std::int32_t of =
        is_answer(origin.turn) || speaker == Origin::none ? origin.turn : speaker;
    if (origin.is_generation && (!is_answer(of) || message(of).trained))
      ranges.push_back({{begin, end}, of});
    begin = end;
  }
}

}  // namespace finetune::data
