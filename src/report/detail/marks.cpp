// SPDX-License-Identifier: Apache-2.0
#include "report/detail/marks.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace finetune::report::detail {

std::vector<plot::Mark> marks_of(const RunHistory& run, std::size_t colour, bool says_name) {
  const std::string of = says_name ? run.name + ": " : "";
  std::vector<std::int64_t> restarts, saved = run.checkpoint_folders;
  for (const ResumeRow& row : run.resumes)
    restarts.push_back(row.step);
  for (const Start& start : run.starts)
    if (start.step > 0) restarts.push_back(start.step);
  for (const CheckpointRow& row : run.checkpoints)
    saved.push_back(row.step);
  saved.insert(saved.end(), restarts.begin(), restarts.end());
  std::vector<plot::Mark> marks;
  const auto add = [&](std::vector<std::int64_t>& steps, plot::Mark::Kind kind, const char* what) {
    std::ranges::sort(steps);
    steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
    for (const std::int64_t step : steps)
      marks.push_back(
          {static_cast<double>(step), colour, kind, fmt::format("{}{} {}", of, what, step)});
  };
  add(restarts, plot::Mark::Kind::restart, "restarted after step");
  add(saved, plot::Mark::Kind::checkpoint, "checkpoint after step");
  return marks;
}

std::vector<plot::Mark> marks_of(std::span<const RunHistory> runs) {
  std::vector<plot::Mark> marks;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    // Marks of one run need no colour.
    const auto own = marks_of(runs[i], runs.size() > 1 ? i : 5, runs.size() > 1);
    marks.insert(marks.end(), own.begin(), own.end());
  }
  return marks;
}

}  // namespace finetune::report::detail
