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
  Words(const Model& model, std::string_view text, Workspace& workspace,
        std::vector<std::int32_t>& ids)
      : bpe_(std::get_if<Bpe>(&model)),
        unigram_(std::get_if<Unigram>(&model)),
        text_bytes_(text.size()),
        workspace_(workspace),
        ids_(ids) {}
  void take(std::string_view word) override {
    if (bpe_ != nullptr) {
      bpe_->encode(word, ids_, workspace_.bpe);
    } else {
      unigram_->encode(word, ids_, workspace_.unigram);
    }
    // Each piece between added tokens may grow within its own bound: all of them together, too.
    check_growth(text_bytes_, ids_.size());
  }

 private:
  const Bpe* bpe_;
  const Unigram* unigram_;
  std::size_t text_bytes_;
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

void Tokenizer::Parts::encode_text(std::string_view text, const SpecialNames& special,
                                   bool continues, bool has_own_prefix, Workspace& workspace,
                                   std::vector<std::int32_t>& ids) const {
  Matcher matcher;
  Words words(model, text, workspace, ids);
  std::string& buffer = workspace.normal;
  const bool maps =
      special.count == SpecialNames::Count::inside && added.after_normalizer().has_special();
  // Added tokens are taken out of the text before it is normalised, and others of what is left
  // after; what then remains is for the model.
  added.before_normalizer().split(
      text, special, [&](std::string_view piece, std::size_t begin, const AddedToken* token) {
        if (token != nullptr) {
          ids.push_back(token->id);
          return;
        }
        const bool no_prefix =
            (begin == 0 ? continues : prefix_once) || (has_own_prefix && piece.starts_with(' '));
        const Prefix prefix = no_prefix ? Prefix::left_out : Prefix::allowed;
        const std::string_view normal = normalizer.apply(piece, prefix, buffer, matcher);
        const SpecialNames inside =
            maps ? after_normalizing(piece, normal, special.within(begin, begin + piece.size()),
                                     prefix, matcher)
                 : SpecialNames{special.count, {}};
        added.after_normalizer().split(
            normal, inside,
            [&](std::string_view part, std::size_t part_begin, const AddedToken* found) {
              if (found != nullptr) {
                ids.push_back(found->id);
              } else {
                pre_tokenizer.run(part, begin == 0 && part_begin == 0, prefix, matcher, words);
              }
            });
      });
}

std::vector<std::int32_t> Tokenizer::Parts::encode(std::string_view text,
                                                   const SpecialNames& special,
                                                   Encode options) const {
  std::vector<std::int32_t> ids;
  ids.reserve(text.size() / 4 + 16);
  const bool continues = has(options, Encode::continuation);
  const bool is_template = has(options, Encode::no_ends);
  const bool whole = !continues && !is_template;
  if (whole) ids.insert(ids.end(), post_processor.before.begin(), post_processor.before.end());
  auto workspace = workspaces_.take();
  encode_text(text, special, continues, is_template && is_sentencepiece, *workspace, ids);
  workspaces_.give_back(std::move(workspace));
  if (whole) ids.insert(ids.end(), post_processor.after.begin(), post_processor.after.end());
  return ids;
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
  return parts_->encode(text, {plain ? Count::passed_over : Count::everywhere, {}}, options);
}

std::vector<std::int32_t> Tokenizer::encode(std::span<const TextPart> parts, Encode options) const {
  std::string text;
  SpecialNames special{SpecialNames::Count::inside, {}};
  for (const TextPart& part : parts) {
    const std::size_t begin = text.size();
    text += part.text;
    if (part.plain || part.text.empty()) continue;
    auto& ranges = special.ranges;
    if (!ranges.empty() && ranges.back().end == begin) {
      ranges.back().end = text.size();
    } else {
      ranges.push_back({begin, text.size()});
    }
  }
  require_text_and_utf8(text);
  if (has(options, Encode::plain)) special = {SpecialNames::Count::passed_over, {}};
  return parts_->encode(text, special, options);
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
