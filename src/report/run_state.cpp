// SPDX-License-Identifier: Apache-2.0
#include "report/run_state.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"
#include "core/file.hpp"
#include "core/file_lock.hpp"
#include "core/text.hpp"
#include "metrics/progress.hpp"

namespace finetune::report {
namespace {

bool has_steps_of_last_start(const RunHistory& run) {
  return !run.steps.empty() &&
         (run.starts.empty() || run.steps.back().step > run.starts.back().step);
}

/// Of a start that ended and said so.
Verdict judge_end(const RunHistory& run) {
  const Start::End& end = *run.starts.back().end;
  const std::string reason = core::one_line(end.reason);
  if (end.exit_code == core::exit_done) return {.state = RunState::finished, .why = reason};
  if (end.exit_code == core::exit_resubmit || end.exit_code == core::exit_resubmit_older)
    return {.state = RunState::waiting,
            .why = fmt::format("stopped after step {} ({}); the next start continues", end.step,
                               reason)};
  return {.state = RunState::failed,
          .why = fmt::format("ended after step {} with exit code {}: {}", end.step, end.exit_code,
                             reason)};
}

/// Of a folder whose file of starts has nothing: another version wrote it, or none has begun.
Verdict judge_without_starts(const RunHistory& run, std::optional<bool> held) {
  if (held.value_or(false) && run.steps.empty())
    return {.state = RunState::starting, .why = "a job holds the folder and has done no step yet"};
  if (run.steps.empty()) return {.state = RunState::waiting, .why = "no step is done yet"};
  if (run.num_steps() == run.last_step())
    return {.state = RunState::finished,
            .why = fmt::format("all {} steps are done", run.last_step())};
  return {
      .state = RunState::waiting,
      .why = fmt::format("no job holds the folder, and how the last start ended, after step {}, "
                         "is not written down",
                         run.last_step())};
}

Verdict judge_open(const RunHistory& run, std::optional<bool> held, double now_s) {
  const double silent_s = std::max(0.0, now_s - run.last_sign_unix_s);
  const std::string silence = metrics::human_seconds(silent_s);
  const std::string error = run.starts.empty() ? "" : run.last_error_of(run.starts.size() - 1);
  if (held == false && !error.empty())
    return {.state = RunState::dead,
            .why = fmt::format("its job is gone after step {}; its last error: {}", run.last_step(),
                               core::one_line(error))};
  if (held == false)
    return {
        .state = RunState::dead,
        .why = fmt::format("its job is gone after step {} and said nothing: killed, or ended by "
                           "another rank; the job's output may say more",
                           run.last_step())};
  if (silent_s <= patience_s(run)) {
    if (!has_steps_of_last_start(run))
      return {.state = RunState::starting, .why = "no step of this start is done yet"};
    return {.state = RunState::running, .why = fmt::format("last sign {} ago", silence)};
  }
  const auto step_s = run.median_step_s();
  const std::string usual =
      step_s ? fmt::format(", where a step takes {:.3g} s", *step_s) : std::string();
  if (!held)
    return {.state = RunState::dead,
            .why = fmt::format("no sign for {}{}; whether a job still holds the folder cannot be "
                               "seen here",
                               silence, usual)};
  return {.state = RunState::hung, .why = fmt::format("no sign for {}{}", silence, usual)};
}

}  // namespace

std::string to_string(RunState state) {
  switch (state) {
    case RunState::finished:
      return "finished";
    case RunState::running:
      return "running";
    case RunState::starting:
      return "starting";
    case RunState::waiting:
      return "waiting";
    case RunState::hung:
      return "hung";
    case RunState::dead:
      return "dead";
    case RunState::failed:
      return "failed";
  }
  return "";
}

int exit_code(RunState state) {
  switch (state) {
    case RunState::finished:
      return core::exit_done;
    case RunState::running:
      return 10;
    case RunState::starting:
      return 11;
    case RunState::waiting:
      return 12;
    case RunState::hung:
      return 13;
    case RunState::dead:
      return 14;
    case RunState::failed:
      return 15;
  }
  return static_cast<int>(core::ErrorKind::bug);
}

std::optional<bool> is_held(const std::filesystem::path& folder) {
  try {
    return core::is_locked_by_another(core::File(folder / ".lock", core::File::Mode::read_no_link));
  } catch (const core::Error&) {
    return std::nullopt;
  }
}

double patience_s(const RunHistory& run) {
  constexpr double shortest = 60, num_steps = 20, usual_timeout = 600;
  const auto step_s = run.median_step_s();
  if (step_s && has_steps_of_last_start(run)) return std::max(shortest, num_steps * *step_s);
  const std::string timeout = run.deck_text("train.hang_timeout_s");
  const double written = timeout.empty() ? usual_timeout : std::atof(timeout.c_str());
  return std::max(shortest, written);
}

std::optional<double> seconds_left(const RunHistory& run) {
  const auto steps = run.num_steps();
  const auto step_s = run.median_step_s();
  if (!steps || !step_s) return std::nullopt;
  return static_cast<double>(std::max<std::int64_t>(0, *steps - run.last_step())) * *step_s;
}

Verdict judge(const RunHistory& run, std::optional<bool> held, double now_s) {
  Verdict verdict;
  const bool is_open = !run.starts.empty() && !run.starts.back().end;
  const bool is_finished = !run.starts.empty() && run.starts.back().end &&
                           run.starts.back().end->exit_code == core::exit_done;
  if (is_open)
    verdict = judge_open(run, held, now_s);
  else if (held.value_or(false) && !is_finished && !run.starts.empty())
    verdict = {.state = RunState::starting,
               .why = "a job holds the folder and loads its model and data"};
  else if (run.starts.empty() && held.value_or(false) && !run.steps.empty())
    verdict = judge_open(run, held, now_s);
  else if (run.starts.empty())
    verdict = judge_without_starts(run, held);
  else
    verdict = judge_end(run);
  verdict.num_restarts = static_cast<int>(
      std::max(run.resumes.size(), static_cast<std::size_t>(std::ranges::count_if(
                                       run.starts, [](const Start& s) { return s.step > 0; }))));
  return verdict;
}

}  // namespace finetune::report
