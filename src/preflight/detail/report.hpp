#pragma once
// SPDX-License-Identifier: Apache-2.0
// What a check found: one table, one verdict.

#include <cstdint>
#include <string>
#include <vector>

#include "core/error.hpp"

namespace finetune::preflight {

enum class Grade { good, note, warning, bad };
std::string to_string(Grade grade);

/// What is wrong, in the grammar of errors; `message.where` begins with the node's name.
struct CheckProblem {
  Grade grade = Grade::bad;
  core::Message message;
  core::ErrorKind kind = core::ErrorKind::environment;
};

/// A row of the table: one subject, what was seen, and what is wrong with it.
struct Finding {
  std::string subject;
  std::string text;
  std::vector<CheckProblem> problems = {};
  std::string details = {};  ///< lines below the table, for example a matrix

  void warn(core::Message message) { problems.push_back({Grade::warning, std::move(message)}); }
  void fail(core::Message message) { problems.push_back({Grade::bad, std::move(message)}); }
  void note(core::Message message) { problems.push_back({Grade::note, std::move(message)}); }
  Grade grade() const;  ///< the worst of its problems
};

struct [[nodiscard]] Report {
  std::vector<Finding> findings;

  std::int64_t count(Grade grade) const;
  /// All problems of a grade, one line each.
  std::vector<std::string> lines(Grade grade) const;
  /// 0 if nothing is bad; 69 if a bad problem is of the environment, else the first one's code.
  int exit_code() const;
  /// "ready", "ready, with 2 warnings", "not ready: node3: ..."
  std::string verdict() const;
};

/// The table: subject, grade, what was seen.
std::string to_string(const Report& report);

/// Of many things of one kind, names the first and counts the rest.
inline constexpr std::size_t most_told = 8;

/// "a, b, c and 12 more"
std::string some_of(const std::vector<std::string>& names);

/// Keeps the first most_told problems of each grade and says in a last one how many more there are.
void shorten(Finding& finding);

}  // namespace finetune::preflight
