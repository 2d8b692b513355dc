// SPDX-License-Identifier: Apache-2.0
#include "data/text/detail/chat_writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <span>
#include <utility>

#include "core/error.hpp"
#include "core/text.hpp"
#include "data/text/detail/chat_segments.hpp"
#include "data/text/detail/message_values.hpp"
#include "data/text/detail/white_space.hpp"
#include "data/text/source.hpp"

namespace finetune::data {
namespace {

using jinja::Origin;
using jinja::Value;

/// What templates that write the day are told in training: a day that stays, so that the same data
/// are the same tokens at every start. It is the one that Llama 3.1's template writes by itself.
constexpr std::int64_t day_of_training_s = 1'721'952'000;

enum class Prompt { none, for_answer };

std::string text_at(const jinja::Rendered& whole, const std::vector<Range>& ranges) {
  std::string text;
  for (const auto& [begin, end] : ranges)
    text += whole.text.substr(begin, end - begin);
  return core::one_line(core::first_bytes(text, 400));
}

}  // namespace

/// One conversation, written whole and up to each answer.
class ChatWriter::Writing {
 public:
  Writing(const ChatWriter& chat, const Conversation& conversation, std::int64_t now_s,
          const std::string& where)
      : chat_(chat),
        template_(chat.template_of(conversation)),
        conversation_(conversation),
        now_s_(now_s),
        where_(where),
        messages_(message_values(conversation)),
        tools_(tool_values(conversation)) {}

  jinja::Rendered whole() const { return written(messages_, Prompt::none); }
  jinja::Rendered prompt() const { return written(messages_, Prompt::for_answer); }

  /// Whether message i is an answer that is to be trained.
  bool is_trained(std::int32_t i) const {
    return i != Origin::none && message(i).role == ChatRole::assistant && message(i).trained;
  }

  /// Of a turn; "template" where it is of no message.
  std::string role(std::int32_t i) const {
    const bool is_message = i >= 0 && i < std::ssize(conversation_.messages);
    return is_message ? std::string(name_of(message(i).role)) : "template";
  }

  /// What of `whole` is trained. A token that ends the last answer and is not there is appended.
  std::vector<Range> trained(jinja::Rendered& whole) const {
    std::vector<Range> ranges;
    if (template_.has_generation()) {
      marked(whole, ranges);
    } else {
      for (std::int32_t i = 0; i < std::ssize(conversation_.messages); ++i)
        if (is_trained(i)) answer(whole, i, ranges);
      std::ranges::sort(ranges);  // Whatever order messages are written in.
    }
    return ranges;
  }

  /// Bits of Oddity of what the template did not write.
  std::uint32_t oddities(const jinja::Rendered& whole) const {
    std::uint32_t bits = 0;
    for (std::int32_t i = 0; i < std::ssize(conversation_.messages); ++i) {
      if (!is_trained(i)) continue;
      const auto lacks = [&](Said said) {
        return std::ranges::none_of(whole.pieces, [&](const jinja::Piece& piece) {
          return piece.origin.element == i && piece.origin.field == static_cast<std::uint8_t>(said);
        });
      };
      if (is_empty(message(i))) bits |= static_cast<std::uint32_t>(Oddity::empty_answer);
      if ((!message(i).reasoning.empty() && lacks(Said::reasoning)) ||
          (!message(i).calls.empty() && lacks(Said::call)))
        bits |= static_cast<std::uint32_t>(Oddity::not_written);
    }
    return bits;
  }

 private:
  const ChatMessage& message(std::int32_t i) const {
    return conversation_.messages[static_cast<std::size_t>(i)];
  }

  jinja::Mapping names(std::vector<Value> messages, Prompt prompt) const {
    jinja::Mapping names;
    const auto set = [&](const char* name, Value value) { names.set(name, std::move(value)); };
    set("messages", std::move(messages));
    set("tools", tools_);
    set("documents", Value());
    set("add_generation_prompt", prompt == Prompt::for_answer);
    if (!chat_.names_.bos.empty()) set("bos_token", chat_.names_.bos);
    if (!chat_.names_.eos.empty()) set("eos_token", chat_.names_.eos);
    // Templates of this program refuse then what they would leave out.
    if (chat_.names_.is_known) set("is_training_data", prompt == Prompt::none);
    for (const auto& [name, value] : conversation_.template_kwargs.items())
      names.set(name, Value::from_json(value));
    return names;
  }

  /// What a template of this program refuses, with the model's own as the remedy where that has
  /// what it lacks. Written once more for that: a conversation that is written costs nothing.
  std::string refused(const jinja::Refusal& refusal, jinja::Mapping names) const {
    const auto advise = [&](const char* name, const char* what, const auto&... words) {
      if (((chat_.names_.own.find(words) == std::string::npos) && ...)) return;
      names.set(name,
                fmt::format("Leave data.template out or set it to \"model\", as the model has "
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

  jinja::Rendered written(std::vector<Value> messages, Prompt prompt) const {
    const jinja::Mapping given = names(std::move(messages), prompt);
    try {
      jinja::Rendered rendered = template_.render(given, now_s_);
      complete_turns(rendered);
      return rendered;
    } catch (const jinja::Refusal& refusal) {
      if (chat_.names_.is_known)
        throw core::Error(core::ErrorKind::input, where_ + ": " + refused(refusal, given));
      std::string said = refusal.what();
      if (said.ends_with('.')) said.pop_back();
      core::fail(core::ErrorKind::input,
                 {where_, "the model's chat template refuses the conversation: " + said, "",
                  "Correct or remove it, or choose another data.template."});
    } catch (const jinja::Problem& problem) {
      core::fail(core::ErrorKind::input,
                 {where_,
                  std::string("the model's chat template cannot write the conversation: ") +
                      problem.what(),
                  "", "Name a template of this program in data.template."});
    }
  }

  std::vector<Value> first(std::int32_t num) const {
    return {messages_.begin(), messages_.begin() + num};
  }

  /// The prompt for message i; nothing where the template refuses to write the messages before it
  /// alone.
  std::optional<AnswerPrompt> prompt_of(std::int32_t i, const jinja::Rendered& whole) const {
    try {
      const jinja::Rendered with = written(first(i), Prompt::for_answer);
      if (whole.text.starts_with(with.text)) return AnswerPrompt{{}, with.text.size()};
      std::string behind = behind_turns(with);
      if (i == 0) {
        // Nothing is of a turn yet, neither what begins every conversation.
        const auto same = std::ranges::mismatch(behind, whole.text);
        const std::size_t begin = turn_of(whole, 0).empty() ? 0 : turn_of(whole, 0).front().first;
        behind.erase(0, std::min<std::size_t>(begin, same.in1 - behind.begin()));
      } else if (behind.empty() && template_.reads("add_generation_prompt")) {
        // It may stand in the turn of the last message.
        const jinja::Rendered without = written(first(i), Prompt::none);
        if (with.text.starts_with(without.text)) behind = with.text.substr(without.text.size());
      }
      return AnswerPrompt{std::move(behind)};
    } catch (const core::Error&) {
      return std::nullopt;
    }
  }

  std::vector<Range> parts_of(const jinja::Rendered& rendered, std::int32_t i,
                              const std::optional<AnswerPrompt>& prompt) const {
    return answer_parts(rendered, i, prompt, chat_.names_.ends, [&](std::int32_t other) {
      // Another message, which is not there, may be written behind the last.
      return other >= std::ssize(messages_) || message(other).role == ChatRole::user ||
             message(other).role == ChatRole::system;
    });
  }

  void answer(jinja::Rendered& whole, std::int32_t i, std::vector<Range>& ranges) const {
    const std::optional<AnswerPrompt> prompt = prompt_of(i, whole);
    std::vector<Range> parts = parts_of(whole, i, prompt);
    if (is_written_elsewhere(whole, i)) {
      const std::optional<Range> elsewhere = answer_elsewhere(whole, i, prompt);
      if (!elsewhere) refuse_unclear(whole, i, turn_of(whole, i));
      parts = {*elsewhere};
    }
    if (parts.empty()) return;
    const AnswerPlace place = place_answer(whole, i, parts, prompt, chat_.names_.ends);
    const std::size_t turn_end = parts.back().second;
    std::optional<Range> next;
    if (place.ends_with != AnswerEnd::known) next = next_end(whole, i, turn_end, place);
    if (is_empty(message(i))) {
      // An empty answer still teaches that the turn ends there.
      if (next)
        ranges.push_back(*next);
      else if (place.ends_at < place.end)
        ranges.emplace_back(place.ends_at, place.end);
      return;
    }
    const std::size_t last = next ? turn_end : place.end;
    for (const auto& [first, end] : parts)
      if (std::max(first, place.begin) < std::min(end, last))
        ranges.emplace_back(std::max(first, place.begin), std::min(end, last));
    if (next) ranges.push_back(*next);
  }

  /// The token behind an answer whose own turn, which ends at byte `at`, ends with none that is
  /// known: of the next turn, or what a next message would let the template write.
  std::optional<Range> next_end(jinja::Rendered& whole, std::int32_t i, std::size_t at,
                                const AnswerPlace& place) const {
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

  /// What ends the last answer, message i, if another message follows, and is not there without.
  std::string end_if_longer(const jinja::Rendered& whole, std::int32_t i,
                            const AnswerPlace& place) const {
    const EndNames& ends = chat_.names_.ends;
    const bool has_special = place.ends_with == AnswerEnd::special;
    jinja::Mapping next;
    next.element = i + 1;
    next.set("role", message(i).calls.empty() ? "user" : "tool");
    next.set("content", "next");
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
        // The template leaves the end of the last turn out.
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

  /// Whether what message i says stands in turns of others, and not in its own.
  bool is_written_elsewhere(const jinja::Rendered& whole, std::int32_t i) const {
    bool is_elsewhere = false;
    for (const jinja::Piece& piece : whole.pieces) {
      const Origin& origin = piece.origin;
      if (origin.element != i || !origin.is_data()) continue;
      if (origin.turn == i || is_trained(origin.turn)) return false;
      is_elsewhere = true;
    }
    return is_elsewhere;
  }

  [[noreturn]] void refuse_unclear(const jinja::Rendered& whole, std::int32_t i,
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

  void marked(const jinja::Rendered& whole, std::vector<Range>& ranges) const {
    std::size_t begin = 0;
    std::int32_t speaker = Origin::none;  // the last answer in this block
    for (const auto& [end, origin] : whole.pieces) {
      if (!origin.is_generation) speaker = Origin::none;
      if (is_answer(origin.element)) speaker = origin.element;
      // Where a template writes messages by pairs, an answer stands in the turn of its question.
      const std::int32_t of =
          is_answer(origin.turn) || speaker == Origin::none ? origin.turn : speaker;
      if (origin.is_generation && (!is_answer(of) || message(of).trained))
        ranges.emplace_back(begin, end);
      begin = end;
    }
  }

  bool is_answer(std::int32_t i) const {
    return i != Origin::none && message(i).role == ChatRole::assistant;
  }

  const ChatWriter& chat_;
  const jinja::Template& template_;
  const Conversation& conversation_;
  std::int64_t now_s_;
  const std::string& where_;
  std::vector<Value> messages_;
  Value tools_;
};

ChatWriter::ChatWriter(std::string_view jinja, Names names, std::string_view for_tools)
    : template_(jinja::Template::parse(jinja)), names_(std::move(names)) {
  if (!for_tools.empty()) for_tools_.emplace(jinja::Template::parse(for_tools));
}

const jinja::Template& ChatWriter::template_of(const Conversation& conversation) const {
  return for_tools_ && !conversation.tools.empty() ? *for_tools_ : template_;
}

namespace {

/// The text from behind what message `i` says to byte `end`.
std::string said_behind(const jinja::Rendered& whole, std::int32_t i, std::size_t end) {
  std::size_t behind = 0;
  for (const jinja::Piece& piece : whole.pieces)
    if (piece.origin.element == i && piece.origin.is_data()) behind = piece.end;
  return whole.text.substr(behind, end - behind);
}

}  // namespace

std::string ChatWriter::stop() const {
  const Conversation probe{{{ChatRole::user, "question"}, {ChatRole::assistant, "answer"}}, {}};
  try {
    const Writing writing(*this, probe, day_of_training_s, "");
    jinja::Rendered whole = writing.whole();
    const std::vector<Range> trained = writing.trained(whole);
    if (trained.empty()) return names_.eos;
    const std::string behind = said_behind(whole, 1, trained.back().second);
    if (names_.is_known) return std::string(strip(behind));
    const auto places = names_.ends.find(behind);
    if (places.empty()) return names_.eos;
    return behind.substr(places.back().begin, places.back().end - places.back().begin);
  } catch (const core::Error&) {
    return names_.eos;
  }
}

Rendered ChatWriter::render(const Conversation& conversation, const std::string& where) const {
  const Writing writing(*this, conversation, day_of_training_s, where);
  jinja::Rendered whole = writing.whole();
  const std::vector<Range> trained = writing.trained(whole);
  const auto excluded = [&](const Origin& origin) {
    // Messages of one role may be written as one turn.
    return origin.element != Origin::none && origin.element != origin.turn &&
           !writing.is_trained(origin.element);
  };
  return {segments_of(whole, trained, excluded), writing.oddities(whole)};
}

std::vector<WrittenTurn> ChatWriter::turns(const Conversation& conversation,
                                           const std::string& where) const {
  const Writing writing(*this, conversation, day_of_training_s, where);
  jinja::Rendered whole = writing.whole();
  (void)writing.trained(whole);  // it may append an end
  std::vector<WrittenTurn> turns;
  std::int32_t last = Origin::none;
  const auto add = [&](std::int32_t message, std::size_t end) {
    if (turns.empty() || message != last) turns.push_back({writing.role(message), 0});
    turns.back().end = end;
    last = message;
  };
  for (const auto& [end, origin] : whole.pieces)
    add(origin.turn == Origin::none ? origin.element : origin.turn, end);
  if (turns.empty() || turns.back().end < whole.text.size()) add(Origin::none, whole.text.size());
  return turns;
}

std::vector<Segment> ChatWriter::prompt(const Conversation& conversation,
                                        const std::string& where) const {
  const jinja::Rendered prompt = Writing(*this, conversation, std::time(nullptr), where).prompt();
  return segments_of(prompt, {}, [](const Origin&) { return false; });
}

jinja::Rendered ChatWriter::written(const Conversation& conversation,
                                    const std::string& where) const {
  return Writing(*this, conversation, day_of_training_s, where).whole();
}

}  // namespace finetune::data
