// SPDX-License-Identifier: Apache-2.0
#include "jinja/text.hpp"

#include <algorithm>

namespace finetune::jinja {

void Text::cover(std::size_t begin, const Origin& origin) {
  if (begin == bytes_.size()) return;
  if (pieces_.empty()) {
    if (origin == Origin{}) return;
    if (begin > 0) pieces_.push_back({begin, {}});
  }
  if (!pieces_.empty() && pieces_.back().origin == origin)
    pieces_.back().end = bytes_.size();
  else
    pieces_.push_back({bytes_.size(), origin});
}

void Text::append(std::string_view bytes, const Origin& origin) {
  const std::size_t begin = bytes_.size();
  bytes_ += bytes;
  cover(begin, origin);
}

Text& Text::operator+=(const Text& text) {
  if (text.pieces_.empty()) {
    append(text.bytes_);
    return *this;
  }
  std::size_t begin = 0;
  const std::size_t num = text.pieces_.size();  // It may be this text itself.
  for (std::size_t i = 0; i < num; ++i) {
    const Piece piece = text.pieces_[i];
    append(std::string_view(text.bytes_).substr(begin, piece.end - begin), piece.origin);
    begin = piece.end;
  }
  return *this;
}

Text Text::part(std::size_t begin, std::size_t length) const {
  Text taken(bytes_.substr(begin, length));
  const std::size_t end = begin + taken.size();
  if (begin == end) return taken;
  auto piece = std::ranges::upper_bound(pieces_, begin, {}, &Piece::end);
  for (; piece != pieces_.end(); ++piece) {
    taken.pieces_.push_back({std::min(piece->end, end) - begin, piece->origin});
    if (piece->end >= end) break;
  }
  return taken;
}

Text Text::with_bytes(std::string bytes) const {
  Text other(std::move(bytes));
  if (other.size() == size())
    other.pieces_ = pieces_;
  else
    other.cover(0, data_origin());
  return other;
}

void Text::merge() {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    if (kept > 0 && pieces_[kept - 1].origin == pieces_[i].origin)
      pieces_[kept - 1].end = pieces_[i].end;
    else
      pieces_[kept++] = pieces_[i];
  }
  pieces_.resize(kept);
}

void Text::set_turn(std::int32_t turn) {
  if (turn == Origin::none) return;
  change_origins([&](Origin& origin) {
    if (origin.turn == Origin::none) origin.turn = turn;
  });
}

void Text::mark_generation() {
  change_origins([](Origin& origin) { origin.is_generation = true; });
}

Origin Text::data_origin() const {
  for (auto piece = pieces_.rbegin(); piece != pieces_.rend(); ++piece)
    if (piece->origin.is_data()) return piece->origin;
  return {};
}

}  // namespace finetune::jinja
