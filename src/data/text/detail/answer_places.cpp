// SPDX-License-Identifier: Apache-2.0
#include "data/text/detail/answer_places.hpp"

#include <algorithm>
#include <span>

#include "data/text/detail/message_values.hpp"

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

/// What message `i` says in some parts of a text.
struct Spoken {
  std::size_t begin = 0, end = 0;
  std::uint8_t field = 0;  ///< of what is said last
};

std::optional<Spoken> said_in(const jinja::Rendered& whole, std::int32_t i,
                              std::span<const Range> parts) {
  std::optional<Spoken> said;
  each_piece(whole, [&](std::size_t begin, std::size_t end, const Origin& origin) {
    if (origin.element != i || !origin.is_data()) return;
    const auto holds = [&](const Range& part) { return part.first <= begin && end <= part.second; };
    if (std::ranges::none_of(parts, holds)) return;
    said = Spoken{said ? said->begin : begin, end, origin.field};
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

std::size_t same_begin(std::string_view a, std::string_view b) {
  return static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

/// How much of `turn` the prompt writes, too. `before`: the text in front of it, with which the
/// prompt may begin, as what stands between turns belongs to neither.
std::size_t prompted(std::string_view before, std::string_view turn, std::string_view prompt,
                     const EndNames& names) {
  if (prompt.empty()) return 0;
  // A template may write more in a turn first, such as a system message that the data do not have.
  if (const std::size_t at = turn.rfind(prompt); at != std::string_view::npos)
    return at + prompt.size();
  std::size_t same = same_begin(turn, prompt);
  std::string_view behind = prompt;
  for (std::size_t n = 1; n < std::min(prompt.size(), before.size() + 1); ++n) {
    if (!before.ends_with(prompt.substr(0, n))) continue;
    const std::size_t longer = same_begin(turn, prompt.substr(n));
    if (longer <= same) continue;
    same = longer;
    behind = prompt.substr(n);
  }
  std::size_t begin = std::min(before_tag(turn, same, names), before_tag(behind, same, names));
  // Not between the bytes of a character.
  while (begin > 0 && begin < turn.size() &&
         (static_cast<unsigned char>(turn[begin]) & 0xC0) == 0x80)
    --begin;
  return begin;
}

struct FoundEnd {
  Range range;
  AnswerEnd kind = AnswerEnd::none;
};

/// Where special tokens stand in markup between some bytes: what others say there, such as a quote,
/// may have their names.
std::vector<SpecialPlace> markup_places(const jinja::Rendered& whole, const Range& bytes,
                                        const EndNames& names) {
  std::vector<SpecialPlace> places;
  const auto add = [&](std::size_t begin, std::size_t end) {
    begin = std::max(begin, bytes.first);
    end = std::min(end, bytes.second);
    if (begin >= end) return;
    for (SpecialPlace place : names.find(std::string_view(whole.text).substr(begin, end - begin))) {
      place.begin += begin;
      place.end += begin;
      places.push_back(place);
    }
  };
  std::size_t markup = 0;
  each_piece(whole, [&](std::size_t begin, std::size_t end, const Origin& origin) {
    if (!origin.is_data()) return;
    add(markup, begin);
    markup = end;
  });
  add(markup, whole.text.size());
  return places;
}

/// The tokens that end an answer in what its turn writes behind it, between some bytes: the first
/// at which generation stops, with its neighbours, else the last special ones of the turn. Where
/// nothing was said
/// (`is_silent`), those in front may be of the turn's begin.
FoundEnd end_in(const jinja::Rendered& whole, const Range& bytes, bool is_silent,
                const EndNames& names) {
  const std::vector<SpecialPlace> all = markup_places(whole, bytes, names);
  auto found = std::ranges::find_if(all, [&](const SpecialPlace& p) { return names.is_end(p); });
  const AnswerEnd kind = found == all.end() ? AnswerEnd::special : AnswerEnd::known;
  if (found == all.end()) {
    const auto last = std::find_if(all.rbegin(), all.rend(), [](auto& p) { return p.special; });
    if (last == all.rend()) return {};
    found = std::prev(last.base());
  }
  Range range(found->begin, found->end);
  for (auto next = std::next(found); next != all.end() && next->begin == range.second; ++next)
    range.second = next->end;
  while (!is_silent && found != all.begin() && std::prev(found)->special &&
         std::prev(found)->end == range.first)
    range.first = (--found)->begin;
  return {range, kind};
}

/// Without white space at its end.
std::size_t end_of_text(std::string_view text, std::size_t begin, std::size_t end) {
  const std::size_t last = text.substr(begin, end - begin).find_last_not_of(" \t\r\n");
  return last == std::string_view::npos ? begin : begin + last + 1;
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

std::vector<Range> answer_parts(const jinja::Rendered& whole, std::int32_t i,
                                const std::optional<AnswerPrompt>& prompt, const EndNames& names,
                                const std::function<bool(std::int32_t)>& is_asking) {
  std::vector<Range> parts = turn_of(whole, i);
  if (prompt && prompt->end) {
    const auto is_before = [&](const Range& part) { return part.second <= *prompt->end; };
    if (!std::ranges::all_of(parts, is_before)) std::erase_if(parts, is_before);
  }
  const auto is_asked_between = [&](std::size_t begin, std::size_t end) {
    bool is_asked = false;
    each_piece(whole, [&](std::size_t first, std::size_t last, const Origin& origin) {
      if (begin <= first && last <= end && origin.turn != Origin::none && is_asking(origin.turn))
        is_asked = true;
    });
    return is_asked;
  };
  for (std::size_t num = 1; num < parts.size(); ++num) {
    const std::size_t end = parts[num - 1].second;
    const auto said = said_in(whole, i, std::span(parts).first(num));
    if (!said) continue;
    const bool is_ended = end_in(whole, {said->end, end}, false, names).kind == AnswerEnd::known;
    if (is_ended || is_asked_between(end, parts[num].first)) parts.resize(num);
  }
  return parts;
}

std::optional<Range> answer_elsewhere(const jinja::Rendered& whole, std::int32_t i,
                                      const std::optional<AnswerPrompt>& prompt) {
  if (!prompt || !prompt->end) return std::nullopt;
  std::optional<Range> place;
  std::int32_t turn = Origin::none;
  std::size_t begin = 0;
  for (const auto& [end, origin] : whole.pieces) {
    const bool is_own = origin.element == i && origin.is_data();
    if (place) {
      if (origin.turn != turn || (origin.is_data() && !is_own)) break;
      place->second = end;
    } else if (end > *prompt->end) {
      if (origin.is_data() && !is_own) break;
      if (is_own && begin < *prompt->end) break;
      if (is_own) {
        place = Range(*prompt->end, end);
        turn = origin.turn;
      }
    }
    begin = end;
  }
  return place;
}

AnswerPlace place_answer(const jinja::Rendered& whole, std::int32_t i,
                         const std::vector<Range>& parts, const std::optional<AnswerPrompt>& prompt,
                         const EndNames& names) {
  const std::string_view text = whole.text;
  const auto said = said_in(whole, i, parts);
  const auto [first, first_end] = parts.front();
  const std::size_t limit = said ? std::min(said->begin, first_end) : first_end;
  AnswerPlace place;
  if (prompt && prompt->end)
    place.begin = std::clamp(*prompt->end, first, limit);
  else if (prompt)
    place.begin = first + prompted(text.substr(0, first), text.substr(first, limit - first),
                                   prompt->behind, names);
  else
    place.begin = said ? limit : first;
  place.behind = said ? said->end : place.begin;
  const std::size_t turn_end = parts.back().second;
  place.ends_at = place.end = place.behind;
  const auto [end, kind] = end_in(whole, {place.behind, turn_end}, !said, names);
  place.ends_with = kind;
  if (kind != AnswerEnd::none) {
    place.ends_at = end.first;
    place.end = end.second;
  } else if (said && said->field != static_cast<std::uint8_t>(Said::content)) {
    // What closes a call or thoughts.
    place.end = end_of_text(text, place.behind, turn_end);
  }
  return place;
}

void end_alike(const jinja::Rendered& other, std::int32_t i, const std::vector<Range>& parts,
               const jinja::Rendered& whole, std::size_t turn_end, const EndNames& names,
               AnswerPlace& place) {
  const AnswerPlace said = place_answer(other, i, parts, std::nullopt, names);
  const std::string_view behind =
      std::string_view(other.text).substr(said.ends_at, parts.back().second - said.ends_at);
  if (!std::string_view(whole.text).substr(0, turn_end).ends_with(behind)) return;
  place.ends_with = said.ends_with;
  place.behind = turn_end - (parts.back().second - said.behind);
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
