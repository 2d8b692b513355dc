#pragma once
// SPDX-License-Identifier: Apache-2.0
// Which bytes of a conversation, as a template wrote it, are answers that are trained.
//
// An answer is what is written in the turn of its message: behind what the prompt for it writes
// there, too, up to the tokens that end it. Nothing is looked for in what messages say: the pieces
// of the text know which message said them and in whose turn they were written.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/template.hpp"
#include "tokenizer/tokenizer.hpp"

namespace finetune::data {

/// Bytes [first, second) of a text.
using Range = std::pair<std::size_t, std::size_t>;

/// What is trained of an answer, or a part of it.
struct TrainedRange {
  Range bytes;
  std::int32_t answer = jinja::Origin::none;  ///< its message

  auto operator<=>(const TrainedRange&) const = default;
};

/// What a model's tokenizer and generation_config.json say of ends.
struct EndNames {
  /// Where special tokens stand in markup.
  std::function<std::vector<tokenizer::SpecialPlace>(std::string_view)> find;
  std::vector<std::int32_t> ids;  ///< at which generation stops; none: not known
  std::optional<std::int32_t> bos = {};

  bool is_end(const tokenizer::SpecialPlace& place) const;
};

/// Without a loop over messages what is written behind what a message says is of its turn.
void complete_turns(jinja::Rendered& rendered);

/// Where the turn of message `i` stands: once, or in parts with those of others in between.
std::vector<Range> turn_of(const jinja::Rendered& rendered, std::int32_t i);

/// What is written behind all turns: the prompt for an answer, where it is asked for.
std::string behind_turns(const jinja::Rendered& rendered);

/// The prompt for an answer.
struct AnswerPrompt {
  std::string behind;  ///< what it writes behind the messages before the answer
  /// Where the answer begins in the whole conversation, if that begins with the whole prompt: then
  /// nothing has to be compared.
  std::optional<std::size_t> end = {};
};

/// The parts of the turn of message `i` that are its answer: those behind the prompt, up to one
/// that ends it, or to the next turn of somebody who asks (`is_asking`, of a message). What stands
/// behind is a copy, such as thoughts that are told once more.
std::vector<Range> answer_parts(const jinja::Rendered& whole, std::int32_t i,
                                const std::optional<AnswerPrompt>& prompt, const EndNames& names,
                                const std::function<bool(std::int32_t)>& is_asking);

/// Where message `i` speaks in the turn of another, right behind the prompt for it: where a
/// template writes messages by pairs. Nothing if that is not clear.
std::optional<Range> answer_elsewhere(const jinja::Rendered& whole, std::int32_t i,
                                      const std::optional<AnswerPrompt>& prompt);

enum class AnswerEnd {
  none,
  special,  ///< the last special tokens of its turn, which may be anything
  known,    ///< tokens of EndNames::ids, and what stands beside them
};

struct AnswerPlace {
  std::size_t begin = 0;
  std::size_t behind = 0;   ///< what the message says
  std::size_t ends_at = 0;  ///< where the tokens that end it begin; `end` if none do
  std::size_t end = 0;
  AnswerEnd ends_with = AnswerEnd::none;
};

/// Of message `i`, whose answer are these `parts`, at least one. `prompt`: nothing if there can be
/// none for it.
AnswerPlace place_answer(const jinja::Rendered& whole, std::int32_t i,
                         const std::vector<Range>& parts, const std::optional<AnswerPrompt>& prompt,
                         const EndNames& names);

/// Moves the ends of `place`, of message `i`, which says nothing in `whole` and whose turn ends at
/// byte `turn_end` there, to where they are in `other`, where it says something in `parts`: a
/// header may end with tokens, too. Leaves it where the two turns end otherwise.
void end_alike(const jinja::Rendered& other, std::int32_t i, const std::vector<Range>& parts,
               const jinja::Rendered& whole, std::size_t turn_end, const EndNames& names,
               AnswerPlace& place);

/// What may end an answer behind its turn.
enum class NextEnd {
  known,        ///< a token of EndNames::ids
  any_special,  ///< any special token but the begin token: a turn of others begins there
};

/// The token that begins right at byte `at`, which is markup; nothing if none does that may end an
/// answer.
std::optional<Range> end_at(const jinja::Rendered& whole, std::size_t at, const EndNames& names,
                            NextEnd which);

}  // namespace finetune::data
