// SPDX-License-Identifier: Apache-2.0
#include "train/infer/task_folder.hpp"

#include <fmt/format.h>

#include <system_error>
#include <utility>

#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/file.hpp"
#include "core/json.hpp"
#include "core/log.hpp"

namespace finetune::train {
namespace {

namespace fs = std::filesystem;

/// What an evaluation in `folder` has written down so far; the root reads it for all.
std::string known_lines(const comm::Communicator& world, const fs::path& folder) {
  return world.broadcast_text(comm::agree(world, [&] {
    std::error_code ignored;
    constexpr std::int64_t largest_bytes = std::int64_t{1} << 32;
    const fs::path file = folder / TaskFolder::progress_name;
    return world.is_root() && fs::exists(file, ignored) ? core::read_text(file, largest_bytes)
                                                        : std::string();
  }));
}

/// A line for each answer.
std::string lines_of(const std::vector<tasks::Outcome>& outcomes) {
  std::string lines;
  for (const tasks::Outcome& outcome : outcomes) {
    for (const tasks::Judged& judged : outcome.judged) {
      core::Json line = judged.record;
      line["model"] = outcome.model;
      line["task"] = outcome.task;
      line["question"] = judged.index + 1;
      for (const auto& [metric, value] : judged.values)
        line[metric] = value;
      lines += line.dump(-1, ' ', false, core::Json::error_handler_t::replace) + "\n";
    }
  }
  return lines;
}

}  // namespace

template <typename F>
void TaskFolder::attempt(const F& f) {
  try {
    comm::agree_all(world_, f);
  } catch (const comm::AgreedError& error) {
    if (writing_ == Writing::vital) throw;
    log::warn(fmt::format("results of the evaluation are lost: {}", error.what()));
  }
}

TaskFolder::TaskFolder(const comm::Communicator& world, fs::path folder, Writing writing)
    : world_(world), folder_(std::move(folder)), writing_(writing) {
  attempt([&] {
    if (!world_.is_root()) return;
    std::error_code problem;
    fs::create_directories(folder_, problem);
    if (problem)
      core::fail(core::ErrorKind::create, {folder_.string(), "cannot be created", problem.message(),
                                           "Name another folder for the results."});
  });
}

void TaskFolder::require_own_results() const {
  std::error_code ignored;
  const fs::path results = folder_ / results_name, whose = folder_ / fingerprint_name;
  if (!fs::exists(results, ignored)) return;
  constexpr std::int64_t longest = 256;
  if (fs::exists(whose, ignored) && core::read_text(whose, longest) == fingerprint_) return;
  core::fail(core::ErrorKind::create,
             {results.string(), "is there, and is not of this evaluation",
              "other models, tasks or settings have other results, which would be lost",
              "Name another folder, or remove this one."});
}

tasks::Progress TaskFolder::progress(const std::string& fingerprint) {
  fingerprint_ = fingerprint;
  if (writing_ == Writing::vital)
    attempt([&] {
      if (world_.is_root()) require_own_results();
    });
  std::string lines = known_lines(world_, folder_);
  const tasks::Progress known(lines, fingerprint, [](const std::string&) {});
  // A line that was cut off would spoil the next one.
  lines.resize(lines.rfind('\n') + 1);
  if (!known.continues()) lines.clear();
  attempt([&] {
    if (!world_.is_root()) return;
    core::write_text_atomically(progress_file(), lines);
    file_.open(progress_file(), std::ios::app);
  });
  if (!world_.is_root()) return {lines, fingerprint, {}};
  if (known.size() > 0)
    log::info(fmt::format("goes on: {} answers are known from {}", known.size(),
                          progress_file().string()));
  return {lines, fingerprint, [this](const std::string& line) { write(line); }};
}

void TaskFolder::finish(const std::vector<tasks::Outcome>& outcomes, const std::string& table,
                        KeepProgress keeps) {
  attempt([&] {
    if (!world_.is_root()) return;
    core::Json results = tasks::json_of(tasks::figures_of(outcomes));
    results["table"] = table;
    core::write_text_atomically(folder_ / fingerprint_name, fingerprint_);
    core::write_text_atomically(folder_ / samples_name, lines_of(outcomes));
    // The last one: where it is, all is there.
    core::write_text_atomically(folder_ / results_name, results.dump(2) + "\n");
    file_.close();
    std::error_code ignored;
    if (keeps == KeepProgress::no) fs::remove(progress_file(), ignored);
  });
}

tasks::Progress known_progress(const comm::Communicator& world, const fs::path& folder,
                               const std::string& fingerprint) {
  return {known_lines(world, folder), fingerprint, {}};
}

void TaskFolder::write(const std::string& line) {
  if (is_lost_) return;
  file_ << line << std::flush;
  if (file_) return;
  const core::Message text{progress_file().string(), "cannot be written", core::system_reason(),
                           "Is the disk full?"};
  if (writing_ == Writing::vital) core::fail(core::ErrorKind::io, text);
  is_lost_ = true;
  log::warn(core::to_string(text));
}

}  // namespace finetune::train
