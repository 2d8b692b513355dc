// SPDX-License-Identifier: Apache-2.0
#include "data/text/detail/answer_places.hpp"

#include <algorithm>

namespace finetune::data {
namespace {

using jinja::Origin;
using jinja::Piece;
using tokenizer::SpecialPlace;

/// `f(begin, end, origin)` of each piece.
template <typename F>
void each_piece(const jinja::Rendered& rendered, const F& f) {
  std::size_t begin = 0;
  for (const Piece& piece : rendered.pieces) {
    f(begin, piece.end, piece.origin);
    begin = piece.end;
  }
}

/// Of what message `i` says in its own turn: where it begins and ends.
std::optional<Range> said_by(const jinja::Rendered& whole, std::int32_t i) {
  std::optional<Range> said;
  each_piece(whole, [&](std::size_t begin, std::size_t end, const Origin& origin) {
    if (origin.turn != i || origin.element != i || !origin.is_data()) return;
    said = Range(said ? said->first : begin, end);
  });
  return said;
}

/// `at` within `text`, moved back to where a tag or the name of a token begins if it is inside one:
/// "<think>" and "<tool_call>" begin alike.
std::size_t before_tag(std::string_view text, std::size_t at, const EndNames& names) {
  for (const SpecialPlace& place : names.find(text))
    if (place.begin < at && at < place.end) return place.begin;
  const std::size_t open = text.substr(0, at).find_last_of("<[");
  if (open == std::string_view::npos) return at;
  const char close = text[open] == '<' ? '>' : ']';
  const bool is_inside = text.substr(open, at - open).find(close) == std::string_view::npos;
  return is_inside && text.substr(open, at - open).find('\n') == std::string_view::npos ? open : at;
}

/// The text right before byte `at`, where a turn begins, that belongs to no turn: what joins turns.
std::string_view between_turns(const jinja::Rendered& rendered, std::size_t at) {
  std::size_t begin = at;
  auto piece = std::ranges::lower_bound(rendered.pieces, at, {}, &Piece::end);
  while (piece != rendered.pieces.end() && piece->end == begin &&
         piece->origin.turn == Origin::none) {
    if (piece == rendered.pieces.begin()) {
      begin = 0;
      break;
    }
    begin = (--piece)->end;
  }
  return std::string_view(rendered.text).substr(begin, at - begin);
}

/// How much of `turn` the prompt writes, too.
std::size_t prompted(std::string_view turn, std::string_view prompt, const EndNames& names) {
  if (prompt.empty()) return 0;
  // A template may write more in a turn first, such as a system message that the data do not have.
  if (const std::size_t at = turn.rfind(prompt); at != std::string_view::npos)
    return at + prompt.size();
  const auto differ = std::ranges::mismatch(turn, prompt);
  const auto same = static_cast<std::size_t>(differ.in1 - turn.begin());
  std::size_t begin = std::min(before_tag(turn, same, names), before_tag(prompt, same, names));
  // Not between the bytes of a character.
  while (begin > 0 && begin < turn.size() &&
         (static_cast<unsigned char>(turn[begin]) & 0xC0) == 0x80)
    --begin;
  return begin;
}

/// The tokens that end an answer in what its turn writes behind it: the first at which generation
/// stops, with its neighbours, else the last special ones of the turn.
std::optional<Range> end_in(std::string_view markup, const EndNames& names) {
  const std::vector<SpecialPlace> all = names.find(markup);
  auto found = std::ranges::find_if(all, [&](const SpecialPlace& p) { return names.is_end(p); });
  if (found == all.end()) {
    const auto last = std::find_if(all.rbegin(), all.rend(), [](auto& p) { return p.special; });
    if (last == all.rend()) return std::nullopt;
    found = std::prev(last.base());
  }
  Range range(found->begin, found->end);
  for (auto next = std::next(found); next != all.end() && next->begin == range.second; ++next)
    range.second = next->end;
  while (found != all.begin() && std::prev(found)->special && std::prev(found)->end == range.first)
    range.first = (--found)->begin;
  return range;
}

}  // namespace

bool EndNames::is_end(const SpecialPlace& place) const {
  return std::ranges::find(ids, place.id) != ids.end();
}

void complete_turns(jinja::Rendered& rendered) {
  const auto has_turn = [](const Piece& piece) { return piece.origin.turn != Origin::none; };
  if (std::ranges::any_of(rendered.pieces, has_turn)) return;
  std::int32_t turn = Origin::none;
  for (Piece& piece : rendered.pieces) {
    if (piece.origin.element != Origin::none) turn = piece.origin.element;
    piece.origin.turn = turn;
  }
}

std::vector<Range> turn_of(const jinja::Rendered& rendered, std::int32_t i) {
  std::vector<Range> parts;
  each_piece(rendered, [&](std::size_t begin, std::size_t end, const Origin& origin) {
    if (origin.turn != i) return;
    if (!parts.empty() && parts.back().second == begin)
      parts.back().second = end;
    else
      parts.emplace_back(begin, end);
  });
  return parts;
}

std::string behind_turns(const jinja::Rendered& rendered) {
  std::size_t behind = 0;
  each_piece(rendered, [&](std::size_t, std::size_t end, const Origin& origin) {
    if (origin.turn != Origin::none) behind = end;
  });
  return rendered.text.substr(behind);
}

AnswerPlace place_answer(const jinja::Rendered& whole, std::int32_t i,
                         const std::vector<Range>& turn, const std::optional<std::string>& prompt,
                         const EndNames& names) {
  const std::string_view text = whole.text;
  const auto said = said_by(whole, i);
  const auto [first, first_end] = turn.front();
  const std::size_t limit = said ? std::min(said->first, first_end) : first_end;
  AnswerPlace place;
  if (prompt) {
    std::string_view behind_turns = *prompt;
    if (const auto between = between_turns(whole, first);
        i > 0 && behind_turns.starts_with(between))
      behind_turns.remove_prefix(between.size());
    place.begin = first + prompted(text.substr(first, limit - first), behind_turns, names);
  } else {
    place.begin = said ? limit : first;
  }
  const std::size_t behind = said ? said->second : place.begin;
  const std::size_t turn_end = turn.back().second;
  place.ends_at = place.end = behind;
  if (const auto end = end_in(text.substr(behind, turn_end - behind), names)) {
    place.has_end = true;
    place.ends_at = behind + end->first;
    place.end = behind + end->second;
  }
  return place;
}

void end_alike(const jinja::Rendered& other, std::int32_t i, const jinja::Rendered& whole,
               std::size_t turn_end, const EndNames& names, AnswerPlace& place) {
  const std::vector<Range> turn = turn_of(other, i);
  if (turn.empty()) return;
  const AnswerPlace said = place_answer(other, i, turn, std::nullopt, names);
  const std::string_view behind =
      std::string_view(other.text).substr(said.ends_at, turn.back().second - said.ends_at);
  if (!std::string_view(whole.text).substr(0, turn_end).ends_with(behind)) return;
  place.has_end = said.has_end;
  place.ends_at = turn_end - behind.size();
  place.end = place.ends_at + (said.end - said.ends_at);
}

std::optional<Range> end_at(const jinja::Rendered& whole, std::size_t at, const EndNames& names,
                            NextEnd which) {
  const auto piece = std::ranges::upper_bound(whole.pieces, at, {}, &Piece::end);
  if (piece == whole.pieces.end() || piece->origin.is_data()) return std::nullopt;
  const auto places = names.find(std::string_view(whole.text).substr(at, piece->end - at));
  if (places.empty() || places.front().begin != 0) return std::nullopt;
  const SpecialPlace& first = places.front();
  const bool may_end = which == NextEnd::any_special && first.special && first.id != names.bos;
  if (!may_end && !names.is_end(first)) return std::nullopt;
  return Range(at, at + first.end);
}

}  // namespace finetune::data
