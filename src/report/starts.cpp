// SPDX-License-Identifier: Apache-2.0
#include "report/starts.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include "core/error.hpp"
#include "core/file.hpp"
#include "core/host.hpp"
#include "core/text.hpp"
#include "metrics/start_file.hpp"
#include "report/detail/rows.hpp"

namespace finetune::report {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view opening = "=== ";
constexpr std::string_view start = "start ";
constexpr std::string_view step = "step ";
constexpr std::string_view error = "error: ";
constexpr std::string_view warning = "warning: ";

/// "2026-11-22 23:47:30 ": a text of the log begins behind it; further lines of one have none.
constexpr std::string_view time_form = "0000-00-00 00:00:00 ";

bool begins_a_text(std::string_view line) {
  if (line.size() <= time_form.size()) return false;
  return std::ranges::equal(line.substr(0, time_form.size()), time_form, [](char c, char form) {
    return form == '0' ? c >= '0' && c <= '9' : c == form;
  });
}

/// The number behind `start`; 0 if none follows.
std::int64_t number_of_start(std::string_view text) {
  std::int64_t number = 0;
  text.remove_prefix(start.size());
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

class LogReader {
 public:
  void take(std::string_view line) {
    if (!begins_a_text(line)) return;
    const std::string time(line.substr(0, time_form.size() - 1));
    const std::string_view text = line.substr(time_form.size());
    if (text.starts_with(opening)) {
      start_ = 0;  // another process: what it says before it trains is of no start
    } else if (text.starts_with(start) && number_of_start(text) > 0) {
      start_ = number_of_start(text);
      log_.last_step.clear();
    } else if (text.starts_with(error) || text.starts_with(warning)) {
      log_.problems.push_back({.time = time, .text = std::string(text), .start = start_});
    }
    if (start_ == 0) return;
    log_.last_time = time;
    if (text.starts_with(step))
      log_.last_step = text.substr(0, text.find_first_of(":/ ", step.size()));
  }

  Log done() { return std::move(log_); }

 private:
  Log log_;
  std::optional<std::int64_t> start_;
};

}  // namespace

std::vector<Start> read_starts(const fs::path& folder) {
  constexpr std::int64_t largest_bytes = 64 << 20;
  std::vector<Start> starts;
  std::string text;
  try {
    text = core::read_text(folder / metrics::start_file_name, largest_bytes);
  } catch (const core::Error&) {
    return {};  // runs of earlier versions have none
  }
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    if (end == std::string::npos) break;
    const core::Json row = detail::parsed_row(std::string_view(text).substr(at, end - at));
    at = end + 1;
    if (row.is_null()) continue;
    if (auto begun = detail::start_row(row)) starts.push_back(std::move(*begun));
    if (auto ended = detail::end_row(row); ended && !starts.empty())
      starts.back().end = std::move(*ended);
  }
  return starts;
}

Log read_log(const fs::path& folder) {
  constexpr std::int64_t most_bytes = 1 << 20;
  std::string text;
  try {
    const core::File file(folder / "finetune.log", core::File::Mode::read);
    const std::int64_t size = file.size_bytes(),
                       begin = std::max<std::int64_t>(0, size - most_bytes);
    text.resize(static_cast<std::size_t>(size - begin));
    file.read_at(begin, std::as_writable_bytes(std::span(text)));
  } catch (const core::Error&) {
    return {};
  }
  LogReader reader;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    reader.take(std::string_view(text).substr(at, end - at));
    at = end + 1;
  }
  return reader.done();
}

std::string last_error_of(std::span<const Start> starts, std::span<const Problem> problems,
                          std::size_t index) {
  const std::string begin = detail::time_text(starts[index].unix_time_s);
  const bool is_last = index + 1 == starts.size();
  const std::string end = is_last ? "9" : detail::time_text(starts[index + 1].unix_time_s);
  const auto is_of_it = [&](const Problem& problem) {
    if (problem.start) return *problem.start == static_cast<std::int64_t>(index + 1);
    return problem.time >= begin && problem.time < end;  // in this form they have texts' order
  };
  std::string text;
  for (const Problem& problem : problems)
    if (problem.text.starts_with(error) && is_of_it(problem))
      text = problem.text.substr(error.size());
  return text;
}

std::string how_it_ended(const Start& start, const std::string& last_error) {
  if (start.end) return core::one_line(start.end->reason);
  if (last_error.empty()) return "said nothing: killed, or ended by another rank";
  return "killed, or ended by another rank; the last error: " + core::one_line(last_error);
}

LastStart last_start(const fs::path& folder) {
  const auto starts = read_starts(folder);
  if (starts.empty()) return {};
  const Start& last = starts.back();
  const Log log = last.end ? Log() : read_log(folder);
  std::string text =
      how_it_ended(last, last.end ? "" : last_error_of(starts, log.problems, starts.size() - 1));
  if (last.end)
    text += fmt::format(" (after step {}, exit code {})", last.end->step, last.end->exit_code);
  else if (!log.last_time.empty())
    text += fmt::format(" (its log ends at {}{}{})", log.last_time,
                        log.last_step.empty() ? "" : " behind ", log.last_step);
  return {.number = std::ssize(starts), .end = std::move(text)};
}

std::string opening_line(int argc, const char* const* argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  return fmt::format("{}finetune {} on {} (process {})", opening, fmt::join(words, " "),
                     core::host_name(), ::getpid());
}

std::string start_line(const LastStart& last, std::int64_t first_step, std::int64_t num_steps) {
  const std::string text = fmt::format("{}{} in this folder, at step {} of {}", start,
                                       last.number + 1, first_step, num_steps);
  if (last.number == 0) return text;
  return text + fmt::format("; start {}: {}", last.number, last.end);
}

}  // namespace finetune::report
