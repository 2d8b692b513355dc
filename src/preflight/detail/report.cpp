// SPDX-License-Identifier: Apache-2.0
#include "preflight/detail/report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

namespace finetune::preflight {

std::string to_string(Grade grade) {
  switch (grade) {
    case Grade::good:
      return "good";
    case Grade::note:
      return "note";
    case Grade::warning:
      return "warning";
    default:
      return "BAD";
  }
}

Grade Finding::grade() const {
  Grade worst = Grade::good;
  for (const CheckProblem& problem : problems)
    worst = std::max(worst, problem.grade);
  return worst;
}

std::int64_t Report::count(Grade grade) const {
  return std::ssize(lines(grade));
}

std::vector<std::string> Report::lines(Grade grade) const {
  std::vector<std::string> lines;
  for (const Finding& finding : findings) {
    for (const CheckProblem& problem : finding.problems)
      if (problem.grade == grade) lines.push_back(core::to_string(problem.message));
  }
  return lines;
}

int Report::exit_code() const {
  int code = core::exit_done;
  for (const Finding& finding : findings) {
    for (const CheckProblem& problem : finding.problems) {
      if (problem.grade != Grade::bad) continue;
      if (problem.kind == core::ErrorKind::environment) return static_cast<int>(problem.kind);
      if (code == core::exit_done) code = static_cast<int>(problem.kind);
    }
  }
  return code;
}

std::string Report::verdict() const {
  const auto bad = lines(Grade::bad);
  if (bad.size() > 1) return fmt::format("not ready, {} problems; {}", bad.size(), bad.front());
  if (!bad.empty()) return "not ready: " + bad.front();
  const std::int64_t warnings = count(Grade::warning);
  if (warnings == 0) return "ready";
  return fmt::format("ready, with {} warning{}", warnings, warnings == 1 ? "" : "s");
}

std::string to_string(const Report& report) {
  std::size_t width = 0;
  for (const Finding& finding : report.findings)
    width = std::max(width, finding.subject.size());
  std::string text;
  for (const Finding& finding : report.findings) {
    text += fmt::format("{}  {:<{}}  {:<7}  {}", text.empty() ? "" : "\n", finding.subject, width,
                        to_string(finding.grade()), finding.text);
  }
  for (const Finding& finding : report.findings)
    if (!finding.details.empty()) text += "\n" + finding.details;
  return text;
}

std::string some_of(const std::vector<std::string>& names) {
  if (names.size() <= most_told) return fmt::format("{}", fmt::join(names, ", "));
  const std::vector<std::string> first(names.begin(), names.begin() + most_told);
  return fmt::format("{} and {} more", fmt::join(first, ", "), names.size() - most_told);
}

void shorten(Finding& finding) {
  std::map<Grade, std::size_t> seen;
  std::vector<CheckProblem> kept;
  std::map<Grade, CheckProblem> last;
  for (CheckProblem& problem : finding.problems) {
    if (++seen[problem.grade] <= most_told) kept.push_back(problem);
    last[problem.grade] = problem;
  }
  for (auto& [grade, problem] : last) {
    if (seen[grade] <= most_told) continue;
    problem.message = {finding.subject, fmt::format("the same of {} more", seen[grade] - most_told),
                       "the first are named above", "See there."};
    kept.push_back(problem);
  }
  finding.problems = std::move(kept);
}

}  // namespace finetune::preflight
