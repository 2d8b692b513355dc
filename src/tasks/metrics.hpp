#pragma once
// SPDX-License-Identifier: Apache-2.0
// What an answer is worth.

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tasks/requests.hpp"

namespace finetune::tasks {

/// Values by metric's name, 0 to 1 each.
using Values = std::map<std::string, double>;

/// What a model makes of a choice.
struct ScoredChoice {
  double log_likelihood = 0;  ///< natural logarithm, of the continuation after its prompt
};

/// accuracy: whether the likeliest is right. accuracy_normalised: whether that with the largest
/// log-likelihood per character is. true_mass: probability of all that are right, of all choices.
Values judge_choices(const Task& task, const Question& question,
                     const std::vector<ScoredChoice>& scores);

/// The choice that accuracy goes by.
std::size_t likeliest(const std::vector<ScoredChoice>& scores);

/// Of the tries of a question: the mean of each metric over them; with several tries also
/// METRIC_majority (of the answer given most often) and METRIC_any (of the best one) for
/// exact_match and numeric.
Values judge_answers(const Task& task, const Question& question,
                     const std::vector<std::string>& answers);

/// Of metrics that judge parts of an answer, a value for each part: instruction_strict and
/// instruction_loose, for each instruction of the question. Of several tries the mean.
using Parts = std::map<std::string, std::vector<double>>;
Parts judge_parts(const Task& task, const Question& question,
                  const std::vector<std::string>& answers);

/// Whether answers are compared with a text that is right, or checked for instructions.
bool is_of_instructions(const std::string& metric);

/// Names of all values that `task` gives its answers, or its texts.
std::vector<std::string> values_of(const Task& task);

/// What counts of an answer, as the task says.
std::string counted(const Task& task, const std::string& answer);

/// Of words: small letters, without punctuation and articles. Source: Rajpurkar et al. 2016 (arXiv
/// 1606.05250).
double token_f1(const std::string& answer, const std::string& right);

/// F-measure of the longest common subsequence of words (letters and digits, small). Source: Lin
/// 2004 ("ROUGE: A Package for Automatic Evaluation of Summaries").
double rouge_l(const std::string& answer, const std::string& right);

/// The last number in a text as a number, without separators of thousands and currency; nothing if
/// there is none. "inf" and "-inf" are those beyond all doubles.
std::string last_number(const std::string& text);

/// Words of a text as lm-evaluation-harness counts them: the parts of Python's
/// re.split(r"\s+", text), of which those at the ends may be empty.
double num_words(std::string_view text);

/// Whether a text is JSON, alone or as its first block between ```; with a list of names as `right`
/// it is an object that has them.
bool is_json(const std::string& text, const std::string& right);

}  // namespace finetune::tasks
