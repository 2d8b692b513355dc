// SPDX-License-Identifier: Apache-2.0
#include "report/run_history.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "checkpoint/format/layout.hpp"
#include "checkpoint/load/branch.hpp"
#include "core/error.hpp"
#include "core/file.hpp"
#include "deck/document.hpp"
#include "metrics/start_file.hpp"
#include "report/detail/rows.hpp"
#include "report/detail/timeline.hpp"

namespace finetune::report {
namespace {

namespace fs = std::filesystem;

constexpr const char* metrics_name = "metrics.jsonl";
constexpr const char* log_name = "finetune.log";
constexpr const char* deck_name = "input.resolved.toml";
constexpr std::int64_t largest_deck_bytes = 4 << 20;

/// Seconds since 1970 of the last change; 0 without the file.
double changed_s(const fs::path& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0) return 0;
  return static_cast<double>(status.st_mtim.tv_sec) +
         static_cast<double>(status.st_mtim.tv_nsec) * 1e-9;
}

/// Opening a pipe would wait for a writer for ever.
bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

/// A run that went back to an earlier step has one curve: what came later was another.
template <typename Row>
void drop_from(std::vector<Row>& rows, std::int64_t step) {
  while (!rows.empty() && rows.back().step >= step)
    rows.pop_back();
}

std::string name_of(const fs::path& folder) {
  fs::path path = folder.lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  if (path.filename() == "." || path.filename() == "..") {
    std::error_code error;
    path = fs::canonical(path, error);
  }
  return path.filename().string();
}

}  // namespace

std::int64_t RunHistory::last_step() const {
  if (!steps.empty()) return steps.back().step;
  return starts.empty() ? 0 : starts.back().step;
}

std::string RunHistory::last_error_of(std::size_t start) const {
  return report::last_error_of(starts, problems, start);
}

std::optional<std::int64_t> RunHistory::num_steps() const {
  if (!starts.empty()) {
    const auto number = detail::number_of(starts.back().facts, "num_steps");
    if (number) return static_cast<std::int64_t>(*number);
  }
  const auto found = deck_values.find("train.max_steps");
  if (found == deck_values.end() || found->second.starts_with("-")) return std::nullopt;
  return detail::whole_number(found->second);
}

std::optional<double> RunHistory::median_step_s() const {
  constexpr std::size_t most = 50;
  std::vector<double> seconds;
  for (std::size_t i = steps.size() - std::min(most, steps.size()); i < steps.size(); ++i)
    if (std::isfinite(steps[i].step_s)) seconds.push_back(steps[i].step_s);
  if (seconds.empty()) return std::nullopt;
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return *middle;
}

std::string RunHistory::deck_text(const std::string& key) const {
  const auto found = deck_values.find(key);
  if (found == deck_values.end()) return "";
  const std::string& value = found->second;
  const bool is_quoted = value.size() >= 2 && value.front() == '"' && value.back() == '"';
  return is_quoted ? value.substr(1, value.size() - 2) : value;
}

HistoryReader::HistoryReader(fs::path folder) {
  history_.folder = std::move(folder);
  history_.name = name_of(history_.folder);
  std::error_code error;
  if (!fs::is_directory(history_.folder, error)) {
    core::fail(core::ErrorKind::input,
               {history_.folder.string(), "is no folder", "a run is known by its output folder",
                "Name the train.output of a run."});
  }
  const bool is_run = fs::exists(history_.folder / metrics_name, error) ||
                      fs::exists(history_.folder / metrics::start_file_name, error) ||
                      fs::exists(history_.folder / ".lock", error);
  if (!is_run) {
    core::fail(core::ErrorKind::input, {history_.folder.string(), "holds no run",
                                        "there is neither metrics.jsonl nor starts.jsonl in it",
                                        "Name the train.output of a run."});
  }
  update();
}

const RunHistory& HistoryReader::update() {
  history_.starts = report::read_starts(history_.folder);
  read_deck();
  read_metrics();
  history_.problems = read_log(history_.folder).problems;
  read_checkpoints();
  const std::string folder = history_.deck_text("profile.dir");
  history_.timeline =
      detail::read_timeline(history_.folder / (folder.empty() ? "profile" : folder));
  history_.last_sign_unix_s = 0;
  for (const char* name : {metrics_name, metrics::start_file_name, log_name})
    history_.last_sign_unix_s =
        std::max(history_.last_sign_unix_s, changed_s(history_.folder / name));
  return history_;
}

/// Whose checkpoints are which is in files that are larger: they are read when something changed.
void HistoryReader::read_checkpoints() {
  std::vector<std::int64_t> listed;
  std::error_code error;
  for (fs::directory_iterator i(history_.folder, error), end; !error && i != end;
       i.increment(error)) {
    if (const auto step = checkpoint::step_of(i->path().filename().string()))
      listed.push_back(*step);
  }
  std::ranges::sort(listed);
  const double noted_unix_s = changed_s(checkpoint::note_path(history_.folder));
  if (listed != listed_ || noted_unix_s != noted_unix_s_) {
    const checkpoint::Branch branch = checkpoint::read_branch(history_.folder);
    branch_steps_.assign(branch.steps.rbegin(), branch.steps.rend());
    other_branches_ = checkpoint::describe_others(branch);
    listed_ = std::move(listed);
    noted_unix_s_ = noted_unix_s;
  }
  history_.checkpoint_folders = branch_steps_;
  history_.other_branches = other_branches_;
  history_.last_checkpoint_unix_s = 0;
  if (!branch_steps_.empty())
    history_.last_checkpoint_unix_s =
        changed_s(history_.folder / checkpoint::folder_name(branch_steps_.back()) /
                  checkpoint::manifest_name);
}

void HistoryReader::read_metrics() {
  const fs::path path = history_.folder / metrics_name;
  struct stat status = {};
  if (!is_file(path) || ::stat(path.c_str(), &status) != 0) return;
  std::ifstream file(path, std::ios::binary);
  if (!file) return;
  std::string before(last_line_.size(), '\0');
  file.seekg(offset_ - static_cast<std::int64_t>(before.size()));
  file.read(before.data(), static_cast<std::streamsize>(before.size()));
  if (!file || before != last_line_ || inode_ != status.st_ino || status.st_size < offset_) {
    // A new start cut the file, or it is another run's: from the beginning.
    RunHistory empty;
    empty.folder = std::move(history_.folder);
    empty.name = std::move(history_.name);
    empty.starts = std::move(history_.starts);
    empty.deck = std::move(history_.deck);
    empty.deck_values = std::move(history_.deck_values);
    history_ = std::move(empty);
    offset_ = 0;
    last_line_.clear();
    inode_ = status.st_ino;
    file.clear();
    file.seekg(0);
  }
  for (std::string line; std::getline(file, line) && !file.eof();) {
    offset_ += std::ssize(line) + 1;
    take_line(line);
    last_line_ = line + "\n";
  }
}

void HistoryReader::take_line(std::string_view line) {
  const core::Json row = detail::parsed_row(line);
  if (row.is_null()) {
    if (!line.empty()) ++history_.num_unreadable;
    return;
  }
  if (const auto found = row.find("data"); found != row.end() && found->is_object()) {
    history_.data.push_back(*found);
    return;
  }
  const auto step = detail::step_of(row);
  if (!step) return;
  RunHistory& h = history_;
  if (row.contains("loss")) {
    drop_from(h.steps, *step);
    drop_from(h.times, *step);
    drop_from(h.memory, *step);
    drop_from(h.devices, *step);
    drop_from(h.links, *step);
    h.steps.push_back(detail::step_row(*step, row));
    if (auto times = detail::times_row(*step, row)) h.times.push_back(std::move(*times));
    if (auto devices = detail::devices_row(*step, row)) h.devices.push_back(std::move(*devices));
    if (auto links = detail::links_row(*step, row)) h.links.push_back(std::move(*links));
    if (auto memory = detail::memory_row(*step, row)) h.memory.push_back(*memory);
  } else if (row.contains("validation_loss")) {
    drop_from(h.validations, *step);
    h.validations.push_back(detail::validation_row(*step, row));
  } else if (const auto asked = row.find("evaluation"); asked != row.end()) {
    drop_from(h.evaluations, *step);
    h.evaluations.push_back(detail::evaluation_row(*step, *asked));
  } else if (const auto saved = row.find("checkpoint"); saved != row.end()) {
    h.checkpoints.push_back(detail::checkpoint_row(*step, *saved));
  } else if (const auto resumed = row.find("resume"); resumed != row.end()) {
    h.resumes.push_back({*step, detail::number_of(*resumed, "read_s").value_or(0)});
  } else if (const auto answers = row.find("answers"); answers != row.end()) {
    drop_from(h.answers, *step);
    h.answers.push_back(detail::answers_row(*step, *answers));
  }
}

void HistoryReader::read_deck() {
  try {
    std::string text = core::read_text(history_.folder / deck_name, largest_deck_bytes);
    if (text == history_.deck) return;
    history_.deck = std::move(text);
    history_.deck_values.clear();
    const deck::Document document = deck::parse({.file_name = deck_name, .text = history_.deck});
    for (const auto& [table, section] : document.sections)
      for (const auto& [key, value] : section.values)
        history_.deck_values[table + "." + key] = value.written;
  } catch (const core::Error&) {
    // Without a deck there is still a curve.
  }
}

const EvaluationRow::Measured* EvaluationRow::find(const std::string& name) const {
  const auto found = std::ranges::find(measured, name, &Measured::name);
  return found == measured.end() ? nullptr : &*found;
}

RunHistory read_run(const fs::path& folder) {
  return HistoryReader(folder).history();
}

void for_each_row(const fs::path& folder, const std::function<void(const core::Json&)>& use) {
  if (!is_file(folder / metrics_name)) return;
  std::ifstream file(folder / metrics_name, std::ios::binary);
  for (std::string line; std::getline(file, line);) {
    const core::Json row = detail::parsed_row(line);
    if (!row.is_null()) use(row);
  }
}

}  // namespace finetune::report
