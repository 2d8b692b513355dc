// SPDX-License-Identifier: Apache-2.0
// From text to ids: added tokens are cut out, the rest is normalised, cut into words, and encoded.

#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"
#include "core/text.hpp"
#include "tokenizer/detail/parts.hpp"

namespace finetune::tokenizer {

namespace {

bool has(Encode options, Encode flag) {
  return (static_cast<unsigned>(options) & static_cast<unsigned>(flag)) != 0;
}

/// Encodes the words of one text, one after the other.
class Words : public WordSink {
 public:
  Words(const Model& model, std::size_t text_bytes, Workspace& workspace,
        std::vector<std::int32_t>& ids)
      : bpe_(std::get_if<Bpe>(&model)),
        unigram_(std::get_if<Unigram>(&model)),
        text_bytes_(text_bytes),
        num_before_(ids.size()),
        workspace_(workspace),
        ids_(ids) {}
  void take(std::string_view word) override {
    if (bpe_ != nullptr) {
      bpe_->encode(word, ids_, workspace_.bpe);
    } else {
      unigram_->encode(word, ids_, workspace_.unigram);
    }
    // Each piece between added tokens may grow within its own bound: all of them together, too.
    check_growth(text_bytes_, ids_.size() - num_before_);
  }

 private:
  const Bpe* bpe_;
  const Unigram* unigram_;
  std::size_t text_bytes_;
  std::size_t num_before_;
  Workspace& workspace_;
  std::vector<std::int32_t>& ids_;
};

std::size_t common_start(std::string_view a, std::string_view b) {
  return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first -
                                  a.begin());
}

std::size_t common_end(std::string_view a, std::string_view b) {
  return static_cast<std::size_t>(std::mismatch(a.rbegin(), a.rend(), b.rbegin(), b.rend()).first -
                                  a.rbegin());
}

}  // namespace

std::unique_ptr<Workspace> Workspaces::take() {
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      auto workspace = std::move(free_.back());
      free_.pop_back();
      return workspace;
    }
  }
  return std::make_unique<Workspace>();
}

void Workspaces::give_back(std::unique_ptr<Workspace> workspace) {
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(workspace));
}

/// Where the ranges of `piece` lie in `normal`. What normalisation joined across an end of a range
/// belongs to no range: such a name is ordinary text.
SpecialNames Tokenizer::Parts::after_normalizing(std::string_view piece, std::string_view normal,
                                                 const SpecialNames& special, Prefix prefix,
                                                 Matcher& matcher) const {
  SpecialNames mapped{special.count, {}};
  std::string buffer;
  for (const ByteRange& range : special.ranges) {
    const std::size_t before =
        common_end(normalizer.apply(piece.substr(range.begin),
                                    range.begin == 0 ? prefix : Prefix::left_out, buffer, matcher),
                   normal);
    const std::size_t end =
        common_start(normalizer.apply(piece.substr(0, range.end), prefix, buffer, matcher), normal);
    if (normal.size() - before < end) mapped.ranges.push_back({normal.size() - before, end});
  }
  return mapped;
}

TextToEncode TextToEncode::part(std::size_t begin, std::size_t end) const {
  TextToEncode stretch{text.substr(begin, end - begin), special.within(begin, end)};
  // A place where a stretch begins is the end of the one before, if there is one.
  auto place =
      begin == 0 ? counted.begin() : std::upper_bound(counted.begin(), counted.end(), begin);
  for (; place != counted.end() && *place <= end; ++place)
    stretch.counted.push_back(*place - begin);
  return stretch;
}

std::size_t Tokenizer::Parts::piece_bytes(std::int32_t id) const {
  const AddedToken* token = added.find(id);
  return token != nullptr ? added.decoded(*token).size() : pieces_of(model).piece(id).size();
}

/// How many of `ids` begin within the text that is `beginning` by itself: by bytes of their pieces.
std::size_t Tokenizer::Parts::num_within(std::span<const std::int32_t> beginning,
                                         std::span<const std::int32_t> ids) const {
  std::size_t bytes = 0;
  for (const std::int32_t id : beginning)
    bytes += piece_bytes(id);
  std::size_t next = 0;
  for (std::size_t done = 0; next < ids.size() && done < bytes; ++next)
    done += piece_bytes(ids[next]);
  return next;
}

/// Text between the added tokens that are looked for before it is normalised.
void Tokenizer::Parts::encode_piece(std::string_view piece, const SpecialNames& special,
                                    Prefix prefix, bool starts_text, Matcher& matcher,
                                    std::string& buffer, WordSink& words,
                                    std::vector<std::int32_t>& ids) const {
  const std::string_view normal = normalizer.apply(piece, prefix, buffer, matcher);
  const SpecialNames inside =
      special.ranges.empty() ? special : after_normalizing(piece, normal, special, prefix, matcher);
  added.after_normalizer().split(
      normal, inside, [&](std::string_view part, std::size_t begin, const AddedToken* found) {
        if (found != nullptr) {
          ids.push_back(found->id);
        } else {
          pre_tokenizer.run(part, starts_text && begin == 0, prefix, matcher, words);
        }
      });
}

/// A stretch that nothing before it is joined with; `before` is how that ends.
AddedEnd Tokenizer::Parts::encode_stretch(const TextToEncode& stretch, AddedEnd before,
                                          bool continues, bool has_own_prefix, Workspace& workspace,
                                          Encoded& encoded) const {
  Matcher matcher;
  auto& ids = encoded.ids;
  Words words(model, stretch.text.size(), workspace, ids);
  auto place = stretch.counted.begin();
  const auto count_up_to = [&](std::size_t begin) {
    for (; place != stretch.counted.end() && *place <= begin; ++place)
      encoded.ends.push_back(ids.size());
  };
  const std::size_t taken = before.takes_space ? white_space_after(stretch.text, 0) : 0;
  count_up_to(taken);
  AddedEnd last = before;
  const bool maps = stretch.special.count == SpecialNames::Count::inside &&
                    added.after_normalizer().has_special();
  const auto visit = [&](std::string_view piece, std::size_t begin, const AddedToken* token) {
    const std::size_t at = taken + begin;
    count_up_to(at);
    last = {token != nullptr, token != nullptr && token->rstrip};
    if (token != nullptr) {
      ids.push_back(token->id);
      return;
    }
    const bool is_first = begin == 0 && !before.is_added;
    const bool no_prefix =
        (is_first ? continues : prefix_once) || (has_own_prefix && piece.starts_with(' '));
    const Prefix prefix = no_prefix ? Prefix::left_out : Prefix::allowed;
    const auto encode_some = [&](std::size_t size, WordSink& sink,
                                 std::vector<std::int32_t>& some) {
      const SpecialNames inside =
          maps ? stretch.special.within(at, at + size) : SpecialNames{stretch.special.count, {}};
      encode_piece(piece.substr(0, size), inside, prefix, is_first, matcher, workspace.normal, sink,
                   some);
    };
    const std::size_t first = ids.size();
    encode_some(piece.size(), words, ids);
    for (; place != stretch.counted.end() && *place < at + piece.size(); ++place) {
      std::size_t end = *place - at;
      while (end < piece.size() && (static_cast<unsigned char>(piece[end]) & 0xC0) == 0x80)
        ++end;
      std::vector<std::int32_t> beginning;
      Words words_of_it(model, end, workspace, beginning);
      encode_some(end, words_of_it, beginning);
      encoded.ends.push_back(first + num_within(beginning, std::span(ids).subspan(first)));
    }
  };
  const std::string_view rest = stretch.text.substr(taken);
  added.before_normalizer().split(rest, stretch.special.within(taken, stretch.text.size()), visit);
  count_up_to(stretch.text.size());
  return last;
}

void Tokenizer::Parts::encode_text(const TextToEncode& text, bool continues, bool has_own_prefix,
                                   Workspace& workspace, Encoded& encoded) const {
  AddedEnd before;
  std::size_t begin = 0;
  const auto encode_up_to = [&](std::size_t end) {
    if (begin == end) return;
    const bool is_whole = begin == 0 && end == text.text.size();
    before = encode_stretch(is_whole ? text : text.part(begin, end), before, continues || begin > 0,
                            has_own_prefix, workspace, encoded);
    begin = end;
  };
  for (const std::size_t place : text.starts_anew)
    encode_up_to(place);
  encode_up_to(text.text.size());
  // Of a text without any.
  encoded.ends.resize(text.counted.size(), encoded.ids.size());
}

Encoded Tokenizer::Parts::encode(const TextToEncode& text, Encode options) const {
  Encoded encoded;
  auto& ids = encoded.ids;
  ids.reserve(text.text.size() / 4 + 16);
  const bool continues = has(options, Encode::continuation);
  const bool is_template = has(options, Encode::no_ends);
  const bool whole = !continues && !is_template;
  if (whole) ids.insert(ids.end(), post_processor.before.begin(), post_processor.before.end());
  encoded.num_before = ids.size();
  auto workspace = workspaces_.take();
  encode_text(text, continues, is_template && own_space_is_prefix, *workspace, encoded);
  workspaces_.give_back(std::move(workspace));
  check_growth(text.text.size(), ids.size() - encoded.num_before);
  if (whole) ids.insert(ids.end(), post_processor.after.begin(), post_processor.after.end());
  if (whole) encoded.num_after = post_processor.after.size();
  return encoded;
}

void Tokenizer::require_text_and_utf8(std::string_view text) const {
  if (has_ids_only()) {
    core::fail(core::ErrorKind::input,
               {file().string(), "has no tokenizer", "a text cannot become ids without it",
                "Copy the tokenizer's file from where the model was published."});
  }
  if (const auto bad = core::invalid_utf8(text)) {
    core::fail(core::ErrorKind::input,
               {"text", fmt::format("byte {} is not valid UTF-8", *bad), "tokens are made of UTF-8",
                "Convert the data, for example with iconv."});
  }
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, Encode options) const {
  require_text_and_utf8(text);
  using Count = SpecialNames::Count;
  const bool plain = has(options, Encode::plain);
  return parts_->encode({text, {plain ? Count::passed_over : Count::everywhere, {}}}, options).ids;
}

std::vector<std::int32_t> Tokenizer::encode(std::span<const TextPart> parts, Encode options) const {
  return encode_parts(parts, options).ids;
}

Encoded Tokenizer::encode_parts(std::span<const TextPart> parts, Encode options) const {
  std::string text;
  TextToEncode whole{{}, {SpecialNames::Count::inside, {}}};
  auto& ranges = whole.special.ranges;
  for (const TextPart& part : parts) {
    const std::size_t begin = text.size();
    text += part.text;
    if (part.starts_anew) whole.starts_anew.push_back(begin);
    if (part.is_counted) whole.counted.push_back(text.size());
    if (part.plain || part.text.empty()) continue;
    if (!ranges.empty() && ranges.back().end == begin) {
      ranges.back().end = text.size();
    } else {
      ranges.push_back({begin, text.size()});
    }
  }
  require_text_and_utf8(text);
  whole.text = text;
  if (has(options, Encode::plain)) whole.special = {SpecialNames::Count::passed_over, {}};
  return parts_->encode(whole, options);
}

bool Tokenizer::names_special(std::string_view text) const {
  require_text_and_utf8(text);
  if (parts_->added.before_normalizer().names_special(text)) return true;
  const TokenMatcher& after = parts_->added.after_normalizer();
  if (!after.has_special()) return false;
  Matcher matcher;
  std::string buffer;
  return after.names_special(parts_->normalizer.apply(text, Prefix::allowed, buffer, matcher));
}

}  // namespace finetune::tokenizer
