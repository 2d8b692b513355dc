#pragma once
// SPDX-License-Identifier: Apache-2.0
// The starts of a run and how each ended: starts.jsonl says it, and of a start that could not say
// it, finetune.log tells what is left. What is looked for in the log is worded here, too.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/json.hpp"

namespace finetune::report {

/// One start of the program in this folder, and its end where there was one.
struct Start {
  std::int64_t step = 0;
  double unix_time_s = 0;
  core::Json facts = {};  ///< the row of starts.jsonl
  struct End {
    std::int64_t step = 0;
    double unix_time_s = 0;
    int exit_code = 0;
    std::string reason;
  };
  std::optional<End> end = {};
};

/// A warning or an error of finetune.log.
struct Problem {
  std::string time;  ///< "2026-11-25 10:51:56", local
  std::string text;  ///< "warning: ..." or "error: ..."
  /// Of which start, counted from 1; 0: of a process that had not begun to train; nothing where
  /// what was read of the log does not say.
  std::optional<std::int64_t> start = {};
};

/// What is looked for in finetune.log.
struct Log {
  std::vector<Problem> problems;
  std::string last_time;  ///< of the last line of the last start
  std::string last_step;  ///< "step 10": the last that this start printed
};

/// The last start that came as far as its steps.
struct LastStart {
  std::int64_t number = 0;  ///< counted from 1; 0: there was none
  std::string end;          ///< "a signal asked to stop (after step 12, exit code 75)"
};

/// Of a file that is not there or cannot be read: nothing. Rows that are cut short are left out.
std::vector<Start> read_starts(const std::filesystem::path& folder);
Log read_log(const std::filesystem::path& folder);  ///< of its last MiB

/// The last error that the log has of the start with this index; "" without one.
std::string last_error_of(std::span<const Start> starts, std::span<const Problem> problems,
                          std::size_t index);

/// In a line, for people. `last_error`: of a start without an end.
std::string how_it_ended(const Start& start, const std::string& last_error);

LastStart last_start(const std::filesystem::path& folder);

/// The first line of every process in the log: with which words it was started, and where.
std::string opening_line(int argc, const char* const* argv);

/// Of a start that begins to train. `last`: the one before.
std::string start_line(const LastStart& last, std::int64_t first_step, std::int64_t num_steps);

}  // namespace finetune::report
