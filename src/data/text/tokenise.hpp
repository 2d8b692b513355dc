#pragma once
// SPDX-License-Identifier: Apache-2.0
// Text in segments to tokens and labels.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "data/text/format.hpp"
#include "data/text/source.hpp"
#include "data/tokens/detail/options.hpp"
#include "data/tokens/detail/tokens.hpp"
#include "tokenizer/tokenizer.hpp"

namespace finetune::data {

/// Trained tokens that follow each other, such as an answer with its end.
struct TrainedRun {
  std::size_t begin;
  std::size_t end;
  bool ends_in_markup = false;  ///< a template wrote the last that is no white space
  std::int32_t answer = -1;     ///< Segment::answer where it begins
};

/// A text as tokens, and what was found on the way.
struct TokenisedText {
  Tokens tokens;
  std::vector<TrainedRun> runs;
  bool held_ends = false;  ///< it begins or ends with the token that would have gone there
};

/// Tokens of a text in segments: those of the one text that they make, as the model's library has
/// them, but that nothing is joined with what stands before the first of trained segments: there a
/// model begins to answer. A token with parts of two segments is trained as the one where it
/// begins. With `ends` the tokenizer's begin and end tokens go around the whole, where they do not
/// stand already, and the end token is trained if any segment with text is. Without `ends` a
/// template has written both. Throws: ErrorKind::input for what the tokenizer cannot write.
TokenisedText tokenise_text(std::span<const Segment> segments,
                            const tokenizer::Tokenizer& tokenizer, SpecialNameMeaning special_names,
                            bool ends);

/// Its tokens alone.
Tokens tokenise(std::span<const Segment> segments, const tokenizer::Tokenizer& tokenizer,
                SpecialNameMeaning special_names, bool ends);

/// Ids of a text by itself, with what the tokenizer puts around it and the text does not hold.
std::vector<std::int32_t> encode_document(std::span<const tokenizer::TextPart> parts,
                                          const tokenizer::Tokenizer& tokenizer);

/// An answer without the tokens of `ends` at its end, and without white space behind these.
std::span<const std::int32_t> without_end(std::span<const std::int32_t> answer,
                                          std::span<const std::int32_t> ends,
                                          const tokenizer::Tokenizer& tokenizer);

/// The answers among `runs`, each of one run or of several of the same message, and the tokens that
/// end them, whatever white space is trained behind them: those of `ends`; or one of the template's
/// where none of `ends` follows, as in turns that a template marks and ends by another token than
/// the last; and the special tokens right in front of them.
std::vector<TrainedAnswer> answers_in(const Tokens& tokens, std::span<const TrainedRun> runs,
                                      std::span<const std::int32_t> ends,
                                      const tokenizer::Tokenizer& tokenizer);

/// How many tokens of tokenise_text(segments, ..., ends = false) begin before each of `places`:
/// bytes of the text that the segments make, in increasing order.
std::vector<std::size_t> tokens_before(std::span<const Segment> segments,
                                       std::span<const std::size_t> places,
                                       const tokenizer::Tokenizer& tokenizer,
                                       SpecialNameMeaning special_names);

/// Runs of trained labels, of tokens that came without a text.
std::vector<TrainedRun> runs_of(const Tokens& tokens);

}  // namespace finetune::data
