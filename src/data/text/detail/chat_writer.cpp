// SPDX-License-Identifier: Apache-2.0
#include "data/text/detail/chat_writer.hpp"

#include <ctime>
#include <utility>

#include "core/error.hpp"
#include "data/text/detail/chat_segments.hpp"
#include "data/text/detail/chat_writing.hpp"
#include "data/text/detail/white_space.hpp"

namespace finetune::data {
namespace {

using jinja::Origin;

/// What templates that write the day are told in training: a day that stays, so that the same data
/// are the same tokens at every start. It is the one that Llama 3.1's template writes by itself.
constexpr std::int64_t day_of_training_s = 1'721'952'000;

}  // namespace

ChatWriter::ChatWriter(std::string_view jinja, Names names, std::string_view for_tools)
    : template_(jinja::Template::parse(jinja)), names_(std::move(names)) {
  if (!for_tools.empty()) for_tools_.emplace(jinja::Template::parse(for_tools));
}

std::vector<std::string> ChatWriter::names() const {
  std::vector<std::string> names = template_.names();
  if (for_tools_)
    for (std::string& name : for_tools_->names())
      names.push_back(std::move(name));
  return names;
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
    const std::vector<TrainedRange> trained = writing.trained(whole);
    if (trained.empty()) return names_.eos;
    const std::string behind = said_behind(whole, 1, trained.back().bytes.second);
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
  const std::vector<TrainedRange> trained = writing.trained(whole);
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
