#pragma once
// SPDX-License-Identifier: Apache-2.0
// Text that knows where its parts come from: which of them the data say and which the template
// does, and what was written in whose turn.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace finetune::jinja {

/// Where a part of a text comes from.
struct Origin {
  static constexpr std::int32_t none = -1;

  std::int32_t element = none;  ///< of the data that say it, as the caller counts them
  std::int32_t turn = none;     ///< the element that was being written when it was written
  std::uint8_t field = 0;       ///< of that element, as the caller counts them; 0: the template's
  bool is_generation = false;   ///< written inside of {% generation %}

  bool is_data() const { return field != 0; }
  bool operator==(const Origin&) const = default;
};

/// Bytes up to `end` that have one origin.
struct Piece {
  std::size_t end = 0;
  Origin origin;
};

/// Bytes of UTF-8, in pieces by their origins. Text that has none, of no data and no turn, has no
/// pieces.
class Text {
 public:
  Text() = default;
  explicit Text(std::string bytes) : bytes_(std::move(bytes)) {}
  Text(std::string bytes, const Origin& origin) : bytes_(std::move(bytes)) { cover(0, origin); }

  const std::string& bytes() const { return bytes_; }
  const std::vector<Piece>& pieces() const { return pieces_; }
  /// Leaves nothing.
  std::pair<std::string, std::vector<Piece>> take() && {
    return {std::move(bytes_), std::move(pieces_)};
  }
  std::size_t size() const { return bytes_.size(); }

  Text part(std::size_t begin, std::size_t length) const;
  /// `inside` points into bytes().
  Text part(std::string_view inside) const {
    return part(static_cast<std::size_t>(inside.data() - bytes_.data()), inside.size());
  }
  /// Other bytes in the place of these, with the origins of these. Where their number is another,
  /// all of them have the origin of the last that data say.
  Text with_bytes(std::string bytes) const;

  Text& operator+=(const Text& text);
  void append(std::string_view bytes, const Origin& origin = {});

  /// Of what was written in no turn yet.
  void set_turn(std::int32_t turn);
  void mark_generation();
  /// `f(Origin&)` of every piece. Text without pieces becomes one.
  template <typename F>
  void change_origins(const F& f) {
    if (pieces_.empty() && !bytes_.empty()) pieces_.push_back({bytes_.size(), {}});
    for (Piece& piece : pieces_)
      f(piece.origin);
    merge();
  }

  /// Of the last piece that data say; none if there is none.
  Origin data_origin() const;

 private:
  /// Says that everything from `begin` on has this origin.
  void cover(std::size_t begin, const Origin& origin);
  void merge();

  std::string bytes_;
  std::vector<Piece> pieces_;  ///< empty, or up to the end of the bytes
};

}  // namespace finetune::jinja
