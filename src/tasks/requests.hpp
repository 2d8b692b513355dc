#pragma once
// SPDX-License-Identifier: Apache-2.0
// The questions of a task, as a model is asked them.

#include <cstdint>
#include <string>
#include <vector>

#include "tasks/task.hpp"
#include "tokenizer/tokenizer.hpp"

namespace finetune::tasks {

/// A question.
struct Question {
  std::int64_t index = 0;                 ///< in the file, from 0
  std::string prompt;                     ///< with description and examples; of a text: the text
  std::vector<std::string> prompts = {};  ///< of choices: in front of each
  std::vector<std::string> continuations = {};  ///< of choices, with the delimiter
  std::vector<std::string> choices = {};        ///< as the task writes them
  std::int64_t right = -1;                      ///< of choices
  std::vector<std::int64_t> all_right = {};     ///< of choices that may be several: 1 each, or 0
  std::string answer = {};                      ///< that is right, of other tasks
  /// Of tasks about instructions: whether one is left that can be judged; others are not asked.
  bool has_something_asked = true;
};

/// All of them, or the first `limit` (0: all). Throws: ErrorKind::input with file and line for a
/// question without a field that a template reads, for a text that is empty, for a template that
/// fails or never ends, and for a right choice that there is not.
std::vector<Question> questions_of(const Task& task, std::int64_t limit);

/// Tokens of a prompt and of what follows it: those of both together, as the tokenizer begins a
/// document, cut where the prompt's own end. Spaces at a prompt's end belong to what follows, as
/// tokens begin with them. An empty prompt is `begin`.
struct Pair {
  std::vector<std::int32_t> prompt, continuation;
};
Pair encode_pair(const tokenizer::Tokenizer& tokenizer, std::string prompt,
                 std::string continuation, std::int32_t begin);

}  // namespace finetune::tasks
