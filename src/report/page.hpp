#pragma once
// SPDX-License-Identifier: Apache-2.0
// The report of runs: one HTML file that needs nothing else.

#include <span>
#include <string>

#include "plot/scale.hpp"
#include "report/run_history.hpp"
#include "report/run_state.hpp"

namespace finetune::report {

/// A run and how it is.
struct ReportedRun {
  RunHistory history;
  Verdict verdict;
};

/// Reads and judges the run in `folder`. Throws: ErrorKind::input.
ReportedRun read_reported(const std::filesystem::path& folder, double now_s);

/// `runs` is not empty; the names of its runs are made different. `spacing`: of the losses.
std::string page(std::vector<ReportedRun> runs, double now_s, plot::Spacing spacing);

/// Step and validation rows of metrics.jsonl as a table: a column `run`, one for each field (those
/// within others as "times.compute_s.max"), numbers with the same bits.
std::string csv(std::span<const std::filesystem::path> folders);

/// Writes the report of the run in `folder` to report.html there.
void write_page(const std::filesystem::path& folder, double now_s);

}  // namespace finetune::report
