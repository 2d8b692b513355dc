// SPDX-License-Identifier: Apache-2.0
// Names of added tokens in a text, found as encoding finds them, without the ids between them.

#include <algorithm>
#include <ranges>

#include "core/text.hpp"
#include "tokenizer/detail/parts.hpp"
#include "tokenizer/detail/unicode.hpp"

namespace finetune::tokenizer {
namespace {

/// From places in the normalised form of a text to places in the text.
class Origin {
 public:
  Origin(std::string_view text, Prefix prefix, const Normalizer& normalizer, Matcher& matcher)
      : text_(text), prefix_(prefix), normalizer_(normalizer), matcher_(matcher) {}

  /// Where `name` ends in the text, if it ends at `end` in the normalised one; rising.
  std::size_t end_of(std::string_view name, std::size_t end) {
    // Mostly it stands there as it is.
    for (std::size_t at = text_.find(name, done_); at != std::string_view::npos;
         at = text_.find(name, at + 1)) {
      const std::size_t size = normal_size(at + name.size());
      if (size == end) return done_ = at + name.size();
      if (size > end) break;
    }
    std::size_t low = done_;
    std::size_t high = text_.size();
    while (low < high) {
      std::size_t middle = low + (high - low) / 2;
      while (middle > low && (static_cast<unsigned char>(text_[middle]) & 0xC0) == 0x80)
        --middle;
      if (normal_size(middle) >= end) {
        high = middle;
      } else {
        low = middle + utf8_length(text_[middle]);
      }
    }
    return done_ = low;
  }

 private:
  std::size_t normal_size(std::size_t end) {
    return normalizer_.apply(text_.substr(0, end), prefix_, buffer_, matcher_).size();
  }

  std::string_view text_;
  Prefix prefix_;
  const Normalizer& normalizer_;
  Matcher& matcher_;
  std::string buffer_;
  std::size_t done_ = 0;
};

}  // namespace

void Tokenizer::Parts::find_special(std::string_view text,
                                    std::vector<SpecialPlace>& places) const {
  const SpecialNames everywhere;
  Matcher matcher;
  std::string buffer;
  added.before_normalizer().split(
      text, everywhere, [&](std::string_view piece, std::size_t begin, const AddedToken* token) {
        if (token != nullptr) {
          const auto at = static_cast<std::size_t>(piece.data() - text.data());
          places.push_back({at, at + piece.size(), token->id, token->special});
          return;
        }
        if (added.after_normalizer().is_empty()) return;
        const Prefix prefix = begin > 0 && prefix_once ? Prefix::left_out : Prefix::allowed;
        const std::string_view normal = normalizer.apply(piece, prefix, buffer, matcher);
        Origin origin(piece, prefix, normalizer, matcher);
        std::size_t last = 0;
        added.after_normalizer().split(
            normal, everywhere, [&](std::string_view part, std::size_t, const AddedToken* found) {
              if (found == nullptr) return;
              const auto normal_end =
                  static_cast<std::size_t>(part.data() - normal.data()) + part.size();
              const std::size_t end =
                  normal == piece ? normal_end : origin.end_of(found->content, normal_end);
              const std::size_t length = std::min(found->content.size(), end - last);
              places.push_back({begin + end - length, begin + end, found->id, found->special});
              last = end;
            });
      });
}

std::vector<SpecialPlace> Tokenizer::find_special(std::string_view text) const {
  require_text_and_utf8(text);
  std::vector<SpecialPlace> places;
  parts_->find_special(text, places);
  return places;
}

}  // namespace finetune::tokenizer
