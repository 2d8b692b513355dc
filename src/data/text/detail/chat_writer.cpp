// SPDX-License-Identifier: Apache-2.0
#include "data/text/detail/chat_writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <span>
#include <utility>

#include "core/error.hpp"
#include "core/text.hpp"
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

  /// What of `whole` is trained. A token that ends the last answer and is not there is appended.
  std::vector<Range> trained(jinja::Rendered& whole) const {
    std::vector<Range> ranges;
    if (template_.has_generation()) {
      marked(whole, ranges);
    } else {
      for (std::int32_t i = 0; i < std::ssize(conversation_.messages); ++i)
        if (is_trained(i)) answer(whole, i, ranges);
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

  jinja::Rendered written(std::vector<Value> messages, Prompt prompt) const {
    try {
      jinja::Rendered rendered = template_.render(names(std::move(messages), prompt), now_s_);
      complete_turns(rendered);
      return rendered;
    } catch (const jinja::Refusal& refusal) {
      if (chat_.names_.is_known)
        throw core::Error(core::ErrorKind::input, where_ + ": " + refusal.what());
      core::fail(
          core::ErrorKind::input,
          {where_,
           std::string("the model's chat template refuses the conversation: ") + refusal.what(), "",
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

  /// What the prompt for message i writes behind those before it; nothing where the template
  /// refuses to write these alone.
  std::optional<std::string> prompt_of(std::int32_t i, const jinja::Rendered& whole) const {
    try {
      const jinja::Rendered with = written(first(i), Prompt::for_answer);
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
      return behind;
    } catch (const core::Error&) {
      return std::nullopt;
    }
  }

  void answer(jinja::Rendered& whole, std::int32_t i, std::vector<Range>& ranges) const {
    const std::vector<Range> turn = turn_of(whole, i);
    if (is_written_elsewhere(whole, i)) refuse_unclear(whole, i, turn);
    if (turn.empty()) return;
    const EndNames& ends = chat_.names_.ends;
    AnswerPlace place = place_answer(whole, i, turn, prompt_of(i, whole), ends);
    if (is_empty(message(i))) end_empty(whole, i, turn.back().second, place);
    std::optional<Range> next;
    if (!place.has_end) next = next_end(whole, i, turn.back().second);
    const std::size_t last = next ? turn.back().second : place.end;
    // An empty answer still teaches that the turn ends there.
    const std::size_t begin = is_empty(message(i)) ? std::min(place.ends_at, last) : place.begin;
    for (const auto& [first, end] : turn)
      if (std::max(first, begin) < std::min(end, last))
        ranges.emplace_back(std::max(first, begin), std::min(end, last));
    if (next) ranges.push_back(*next);
  }

  /// Places the ends of an empty answer where they would be if it said something.
  void end_empty(const jinja::Rendered& whole, std::int32_t i, std::size_t turn_end,
                 AnswerPlace& place) const {
    Conversation talk = conversation_;
    ChatMessage& empty = talk.messages[static_cast<std::size_t>(i)];
    empty.text = "something";
    if (!empty.fields.is_null()) empty.fields["content"] = empty.text;
    try {
      const jinja::Rendered other = Writing(chat_, talk, now_s_, where_).whole();
      end_alike(other, i, whole, turn_end, chat_.names_.ends, place);
    } catch (const core::Error&) {
      // Refused with text: it ends as it is written.
    }
  }

  /// The token behind an answer whose own turn ends with none: of the next turn, or of one that a
  /// next message would begin.
  std::optional<Range> next_end(jinja::Rendered& whole, std::int32_t i, std::size_t at) const {
    const EndNames& ends = chat_.names_.ends;
    if (at < whole.text.size()) {
      const auto next = std::ranges::upper_bound(whole.pieces, at, {}, &jinja::Piece::end);
      const std::int32_t turn = next == whole.pieces.end() ? Origin::none : next->origin.turn;
      const bool is_of_others = turn != Origin::none && message(turn).role != ChatRole::assistant;
      return end_at(whole, at, ends, is_of_others ? NextEnd::any_special : NextEnd::known);
    }
    if (i + 1 != std::ssize(messages_)) return std::nullopt;
    jinja::Mapping next;
    next.element = i + 1;
    next.set("role", message(i).calls.empty() ? "user" : "tool");
    next.set("content", "next");
    std::vector<Value> messages = messages_;
    messages.emplace_back(std::move(next));
    try {
      const jinja::Rendered longer = written(std::move(messages), Prompt::none);
      const std::vector<Range> turn = turn_of(longer, i);
      const auto end = turn.empty()
                           ? std::nullopt
                           : end_at(longer, turn.back().second, ends, NextEnd::any_special);
      if (!end) return std::nullopt;
      whole.text += longer.text.substr(end->first, end->second - end->first);
      whole.pieces.push_back({whole.text.size(), {.turn = i}});
      return Range(at, whole.text.size());
    } catch (const core::Error&) {
      return std::nullopt;
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
                            "turn \"{}\", in {} \"{}\"",
                            text_at(whole, turn),
                            other == Origin::none ? std::string("no turn")
                                                  : fmt::format("that of message {}", other + 1),
                            text_at(whole, turn_of(whole, other))),
                "Name a template of this program in data.template, or mark answers in the model's "
                "with {% generation %}."});
  }

  void marked(const jinja::Rendered& whole, std::vector<Range>& ranges) const {
    std::size_t begin = 0;
    for (const auto& [end, origin] : whole.pieces) {
      const std::int32_t of = origin.turn == Origin::none ? origin.element : origin.turn;
      const bool is_answer = of != Origin::none && message(of).role == ChatRole::assistant;
      if (origin.is_generation && (!is_answer || message(of).trained))
        ranges.emplace_back(begin, end);
      begin = end;
    }
  }

  const ChatWriter& chat_;
  const jinja::Template& template_;
  const Conversation& conversation_;
  std::int64_t now_s_;
  const std::string& where_;
  std::vector<Value> messages_;
  Value tools_;
};

namespace {

/// The text as segments, cut where `trained` begins and ends. What of it `excluded` says is not
/// trained.
template <typename F>
std::vector<Segment> segments_of(const jinja::Rendered& rendered, std::span<const Range> trained,
                                 const F& excluded) {
  std::vector<Segment> segments;
  const auto add = [&](std::size_t begin, std::size_t end, bool is_trained, bool is_markup) {
    const std::string text = rendered.text.substr(begin, end - begin);
    if (!segments.empty() && segments.back().trained == is_trained &&
        segments.back().markup == is_markup)
      segments.back().text += text;
    else
      segments.push_back({text, is_trained, is_markup});
  };
  std::size_t at = 0;
  const auto piece_until = [&](std::size_t end, const Origin& origin) {
    while (at < end) {
      while (!trained.empty() && trained.front().second <= at)
        trained = trained.subspan(1);
      const bool is_inside = !trained.empty() && trained.front().first <= at;
      std::size_t until = end;
      if (!trained.empty())
        until = std::min(end, is_inside ? trained.front().second : trained.front().first);
      add(at, until, is_inside && !excluded(origin), !origin.is_data());
      at = until;
    }
  };
  for (const auto& [end, origin] : rendered.pieces)
    piece_until(end, origin);
  piece_until(rendered.text.size(), {});
  return segments;
}

}  // namespace

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

std::vector<Segment> ChatWriter::prompt(const Conversation& conversation,
                                        const std::string& where) const {
  const jinja::Rendered prompt = Writing(*this, conversation, std::time(nullptr), where).prompt();
  return segments_of(prompt, {}, [](const Origin&) { return false; });
}

}  // namespace finetune::data
