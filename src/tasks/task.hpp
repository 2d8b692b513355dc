#pragma once
// SPDX-License-Identifier: Apache-2.0
// A task: questions in a file, how they are asked, and how answers are judged. Its file is TOML
// (inputs/tasks/README.md).

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace finetune::tasks {

enum class Kind {
  choices,     ///< which of some continuations is the likeliest
  generate,    ///< what the model answers
  perplexity,  ///< how likely a text is
};

/// Examples with their answers in front of each question.
struct FewShot {
  std::int64_t count = 0;
  std::string data;  ///< empty: the questions' own file, without the question itself
  std::string separator = "\n\n";
};

struct Generation {
  std::int64_t max_tokens = 256;
  std::vector<std::string> stops;
  std::int64_t samples = 1;  ///< tries of each question
  double temperature = 0;
  double top_p = 1;
  std::string extract;            ///< regular expression of what counts of an answer; empty: all
  std::string take = "last";      ///< of several matches
  std::vector<std::string> drop;  ///< regular expressions of what does not count
  bool ignores_case = false;
  bool ignores_punctuation = false;
};

struct Perplexity {
  std::int64_t window = 0;  ///< tokens that the model sees at once; 0: as many as it can
  std::int64_t stride = 0;  ///< tokens that are new in each window; 0: all but one
};

struct Task {
  std::string name;
  std::string file;  ///< of the task, for messages
  std::filesystem::path data;
  Kind kind = Kind::choices;
  std::string prompt;  ///< template over the fields of a question; of a text: the text
  /// Template that writes a JSON list, or several that write a choice each.
  std::vector<std::string> choices;
  std::string continuation = "{{ choice }}";
  std::string delimiter = " ";  ///< between prompt and continuation
  std::string answer;           ///< template: the right choice's number from 0, or the right answer
  std::string description;      ///< in front of everything
  bool uses_chat = false;       ///< the prompt is what a user says to the model
  std::vector<std::string> metrics;
  FewShot few_shot;
  Generation generation;
  Perplexity perplexity;

  /// Reads a task file. Files that it names are beside it, or in `data_folder` if that is not
  /// empty. Throws: ErrorKind::deck for every problem of the file at once; ErrorKind::input for a
  /// file that is not there.
  static Task read(const std::filesystem::path& file, const std::filesystem::path& data_folder);
};

/// Names that `metrics` may have for tasks of a kind; the first stands where none is named.
const std::vector<std::string>& metrics_of(Kind kind);

}  // namespace finetune::tasks
