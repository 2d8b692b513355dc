#pragma once
// SPDX-License-Identifier: Apache-2.0
// Parts of the page; each is markup, and empty where no run has what it shows.

#include <span>
#include <string>

#include "report/page.hpp"

namespace finetune::report::detail {

using ReportedRuns = std::span<const ReportedRun>;

/// The name of `run`, where there are several.
std::string subtitle(ReportedRuns runs, const RunHistory& run);

/// What was run, and how it is.
std::string head(ReportedRuns runs);
std::string slowest_ranks(ReportedRuns runs);
/// What was told of GPUs that are slower than they could be, and from which step to which.
std::string slow_devices(ReportedRuns runs);
/// How fast links are at last, by axis.
std::string link_rates(ReportedRuns runs);
/// Links that were slower than usual for a minute or more, and from which step to which.
std::string slow_links(ReportedRuns runs);
/// Planned bytes by category.
std::string planned_memory(ReportedRuns runs);
std::string starts(ReportedRuns runs);
std::string checkpoints(ReportedRuns runs);
std::string data(ReportedRuns runs);
std::string answers(ReportedRuns runs);
/// What the tasks of [evaluate] measured first and last.
std::string tasks(ReportedRuns runs);
/// What differs between decks, or the deck of the only run.
std::string decks(ReportedRuns runs);
/// Warnings and errors of finetune.log.
std::string warnings(ReportedRuns runs);

}  // namespace finetune::report::detail
