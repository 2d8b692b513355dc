// SPDX-License-Identifier: Apache-2.0
#include "data/text/detail/model_chat.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include "core/error.hpp"
#include "data/text/detail/white_space.hpp"

namespace finetune::data {
namespace {

using jinja::Value;

/// What templates that write the day are told in training: a day that stays, so that the same data
/// are the same tokens at every start. It is the one that Llama 3.1's template writes by itself.
constexpr std::int64_t day_of_training_s = 1'721'952'000;

/// Around what a conversation says, where it is to be told from what the template adds: characters
/// of private use, which no text has. They stay within white space, which templates strip.
constexpr std::string_view mark_begin = "\uF8A1", mark_end = "\uF8A2";

std::string marked(const std::string& text, bool is_wanted) {
  const std::string_view core = strip(text);
  if (!is_wanted || core.empty()) return text;
  const auto begin = static_cast<std::size_t>(core.data() - text.data());
  std::string whole = text;
  whole.insert(begin + core.size(), mark_end);
  whole.insert(begin, mark_begin);
  return whole;
}

Value json_value(const std::string& text) {
  return Value::from_json(nlohmann::ordered_json::parse(text));
}

Value value_of(const ToolCall& call) {
  jinja::Mapping function;
  function.set("name", call.name);
  function.set("arguments", json_value(call.arguments));
  jinja::Mapping value;
  value.set("type", "function");
  value.set("function", std::move(function));
  return value;
}

Value value_of(const ChatMessage& message, bool marks) {
  jinja::Mapping value;
  value.set("role", std::string(name_of(message.role)));
  value.set("content", marked(message.text, marks));
  if (!message.reasoning.empty()) value.set("reasoning_content", marked(message.reasoning, marks));
  if (!message.calls.empty()) {
    std::vector<Value> calls;
    for (const ToolCall& call : message.calls)
      calls.push_back(value_of(call));
    value.set("tool_calls", std::move(calls));
  }
  return value;
}

/// A part of a text: what a conversation says, or what a template adds.
struct Piece {
  std::string_view text;
  bool is_markup = true;
};

/// Of `text`, by the marks of `with_marks`. A template may look into what is said, and write
/// something else with marks in it: then it is one piece, of the template's.
std::vector<Piece> pieces_of(std::string_view with_marks, std::string_view text) {
  std::vector<Piece> pieces;
  std::size_t at = 0;
  for (bool is_markup = true; !with_marks.empty(); is_markup = !is_markup) {
    const std::string_view mark = is_markup ? mark_begin : mark_end;
    const std::string_view part = with_marks.substr(0, with_marks.find(mark));
    if (text.substr(std::min(at, text.size()), part.size()) != part) return {{text, true}};
    if (!part.empty()) pieces.push_back({text.substr(at, part.size()), is_markup});
    at += part.size();
    with_marks.remove_prefix(std::min(with_marks.size(), part.size() + mark.size()));
  }
  if (at != text.size()) return {{text, true}};
  return pieces;
}

/// Bytes of a text.
using Range = std::pair<std::size_t, std::size_t>;

/// Pieces of a text as segments, cut where `trained` begins and ends.
std::vector<Segment> segments_of(const std::vector<Piece>& pieces,
                                 const std::vector<Range>& trained) {
  std::vector<Segment> segments;
  std::size_t at = 0;
  auto range = trained.begin();
  for (const Piece& piece : pieces) {
    const std::size_t end = at + piece.text.size();
    for (std::size_t begin = at; begin < end;) {
      while (range != trained.end() && range->second <= begin)
        ++range;
      const bool is_trained = range != trained.end() && range->first <= begin;
      std::size_t until = end;
      if (range != trained.end()) until = std::min(end, is_trained ? range->second : range->first);
      segments.push_back(
          {std::string(piece.text.substr(begin - at, until - begin)), is_trained, piece.is_markup});
      begin = until;
    }
    at = end;
  }
  return segments;
}

[[noreturn]] void refuse_unclear(std::size_t message, const std::string& where) {
  core::fail(
      core::ErrorKind::input,
      {where, fmt::format("which tokens message {} (assistant) adds is not clear", message + 1),
       "the model's chat template writes what comes before it differently once it is there",
       "Name a template of this program in data.template, or mark answers in the model's "
       "with {% generation %}."});
}

}  // namespace

ModelChat::ModelChat(std::string_view jinja, std::string bos, std::string eos,
                     std::string_view for_tools)
    : template_(jinja::Template::parse(jinja)), bos_(std::move(bos)), eos_(std::move(eos)) {
  if (!for_tools.empty()) for_tools_.emplace(jinja::Template::parse(for_tools));
}

const jinja::Template& ModelChat::template_of(const Conversation& conversation) const {
  return for_tools_ && !conversation.tools.empty() ? *for_tools_ : template_;
}

jinja::Rendered ModelChat::written(const Conversation& conversation, std::size_t num_messages,
                                   Prompt prompt, bool marks, std::int64_t now_s,
                                   const std::string& where) const {
  jinja::Mapping names;
  std::vector<Value> messages, tools;
  for (std::size_t i = 0; i < num_messages; ++i)
    messages.push_back(value_of(conversation.messages[i], marks));
  for (const std::string& tool : conversation.tools)
    tools.push_back(json_value(tool));
  names.set("messages", std::move(messages));
  names.set("tools", tools.empty() ? Value() : Value(std::move(tools)));
  names.set("documents", Value());
  names.set("add_generation_prompt", prompt == Prompt::for_answer);
  if (!bos_.empty()) names.set("bos_token", bos_);
  if (!eos_.empty()) names.set("eos_token", eos_);
  try {
    return template_of(conversation).render(names, now_s);
  } catch (const jinja::Refusal& refusal) {
    core::fail(
        core::ErrorKind::input,
        {where,
         std::string("the model's chat template refuses the conversation: ") + refusal.what(), "",
         "Correct or remove it, or choose another data.template."});
  } catch (const jinja::Problem& problem) {
    core::fail(
        core::ErrorKind::input,
        {where,
         std::string("the model's chat template cannot write the conversation: ") + problem.what(),
         "", "Name a template of this program in data.template."});
  }
}

std::string ModelChat::behind_an_answer() const {
  const std::string said = "answer";
  const Conversation probe{{{ChatRole::user, "question"}, {ChatRole::assistant, said}}, {}};
  try {
    const std::string text = written(probe, 2, Prompt::none, false, day_of_training_s, "").text;
    const std::size_t at = text.rfind(said);
    return at == std::string::npos ? "" : text.substr(at + said.size());
  } catch (const core::Error&) {
    return "";  // it wants another conversation: then the tokenizer's end is taken
  }
}

std::vector<Segment> ModelChat::render(const Conversation& conversation, const std::string& stop,
                                       const std::string& where) const {
  const std::size_t num = conversation.messages.size();
  const bool marks_answers = template_of(conversation).has_generation();
  const jinja::Rendered whole =
      written(conversation, num, Prompt::none, false, day_of_training_s, where);
  const std::string& text = whole.text;
  const std::string with_marks =
      written(conversation, num, Prompt::none, true, day_of_training_s, where).text;
  std::vector<Range> trained;
  for (std::size_t i = 0; i < num; ++i) {
    const ChatMessage& message = conversation.messages[i];
    if (message.role != ChatRole::assistant || !message.trained) continue;
    if (marks_answers) continue;
    const std::string before =
        written(conversation, i, Prompt::for_answer, false, day_of_training_s, where).text;
    if (!text.starts_with(before)) refuse_unclear(i, where);
    const std::size_t end = text.find(stop, before.size());
    if (end == std::string::npos) refuse_unclear(i, where);
    // An empty answer still teaches that the turn ends there.
    trained.emplace_back(is_empty(message) ? end : before.size(), end + stop.size());
  }
  if (marks_answers) trained = whole.generations;
  return segments_of(pieces_of(with_marks, text), trained);
}

std::vector<Segment> ModelChat::prompt(const Conversation& conversation,
                                       const std::string& where) const {
  const std::int64_t now_s = std::time(nullptr);
  const auto text_of = [&](bool marks) {
    return written(conversation, conversation.messages.size(), Prompt::for_answer, marks, now_s,
                   where)
        .text;
  };
  return segments_of(pieces_of(text_of(true), text_of(false)), {});
}

}  // namespace finetune::data
