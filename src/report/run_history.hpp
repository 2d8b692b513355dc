#pragma once
// SPDX-License-Identifier: Apache-2.0
// What a run left in its output folder, as one curve over all its starts.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/json.hpp"
#include "report/starts.hpp"

namespace finetune::report {

/// Over the ranks, mostly.
struct Spread {
  double min = 0, median = 0, max = 0;
};

/// Where the time of some steps went, means per step.
struct TimesRow {
  std::int64_t step = 0;  ///< the last of them
  std::int64_t num_steps = 1;
  std::vector<std::pair<std::string, Spread>> parts =
      {};  ///< "compute_s", ... in the order of the file
  std::int64_t slowest_rank = -1;
  std::string slowest_host = {};
  std::map<std::string, double> sent_bytes = {};  ///< of the root, by axis
};

/// Peaks so far of the rank that used most; 0: not known.
struct MemoryRow {
  std::int64_t step = 0;
  double tensor_bytes = 0;
  double process_bytes = 0;
};

/// What devices did in some steps.
struct DevicesRow {
  struct Slow {
    std::int64_t rank = -1;
    std::string host;
    std::string why;
  };
  std::int64_t step = 0;                      ///< the last of them
  std::map<std::string, Spread> values = {};  ///< over the ranks, by name: "gpu_use", "cores"
  std::vector<Slow> slow = {};
};

/// Memory of a rank while steps were profiled.
struct MemoryTimeline {
  std::int64_t rank = 0, first_step = 0, last_step = 0;
  std::vector<double> at_s;                                           ///< ordered
  std::vector<std::pair<std::string, std::vector<double>>> mib = {};  ///< by use, at each of them
};

/// How fast the links between ranks were in some steps.
struct LinksRow {
  struct Slow {
    std::string axis;
    std::string nodes;
    double bytes_per_s = 0;
    double usual_bytes_per_s = 0;
  };
  std::int64_t step = 0;                           ///< the last of them
  std::map<std::string, Spread> bytes_per_s = {};  ///< over the groups of an axis
  std::map<std::string, std::string> slowest_nodes = {};
  std::vector<Slow> slow = {};
};

/// One optimizer step. What a file lacks is NaN or nothing.
struct StepRow {
  std::int64_t step = 0;
  double loss = 0, grad_norm = 0, lr = 0, tokens = 0, tokens_per_s = 0, step_s = 0;
  std::optional<double> epoch = {};
  std::optional<double> mfu = {};  ///< part of the devices' peak
  std::optional<double> unix_time_s = {};
};

struct ValidationRow {
  std::int64_t step = 0;
  double loss = 0;
  std::optional<double> exact_match = {};
};

/// What the model of a step made of tasks.
struct EvaluationRow {
  struct Measured {
    std::string name;  ///< "TASK/METRIC"
    double value = 0, standard_error = 0;
  };
  std::int64_t step = 0;
  std::vector<Measured> measured = {};

  /// nullptr: it is not there.
  const Measured* find(const std::string& name) const;
};

struct CheckpointRow {
  std::int64_t step = 0;
  std::string level;
  double bytes = 0, blocked_s = 0, write_s = 0, total_s = 0;
};

/// A start that went on from a checkpoint, on this curve.
struct ResumeRow {
  std::int64_t step = 0;
  double read_s = 0;
};

struct Answer {
  std::string prompt, answer, expected;
};

struct AnswersRow {
  std::int64_t step = 0;
  std::vector<Answer> answers;
};

struct RunHistory {
  std::filesystem::path folder;
  std::string name;  ///< of the folder, for legends
  std::vector<StepRow> steps;
  std::vector<ValidationRow> validations;
  std::vector<EvaluationRow> evaluations;
  std::vector<CheckpointRow> checkpoints;
  std::vector<ResumeRow> resumes;
  std::vector<TimesRow> times;
  std::vector<DevicesRow> devices;
  std::vector<LinksRow> links;
  std::vector<MemoryRow> memory;
  std::vector<AnswersRow> answers;
  std::vector<core::Json> data;            ///< data reports: training, then validation
  std::optional<MemoryTimeline> timeline;  ///< of the newest steps that were profiled
  std::vector<Start> starts;
  std::vector<Problem> problems;                   ///< of the log's last MiB
  std::string deck;                                ///< input.resolved.toml; empty without one
  std::map<std::string, std::string> deck_values;  ///< "train.seed" to "1", as TOML
  std::vector<std::int64_t> checkpoint_folders;    ///< steps of its branch that are there, in order
  std::string other_branches;                      ///< whose checkpoints lie there, too, in words
  double last_checkpoint_unix_s = 0;  ///< when the newest of them was complete; 0 without one
  std::int64_t num_unreadable = 0;    ///< lines of both files that are no JSON object
  double last_sign_unix_s = 0;        ///< when one of its files was last written

  std::int64_t last_step() const;
  /// The last error that the log has of the start with this index; "" without one.
  std::string last_error_of(std::size_t start) const;
  /// Updates of the whole run; nothing where no file says it.
  std::optional<std::int64_t> num_steps() const;
  /// Of the last steps; nothing without any.
  std::optional<double> median_step_s() const;
  /// A value of the deck without TOML's quotes; "" without one.
  std::string deck_text(const std::string& key) const;
};

/// Reads the folder of a run, and again what was added to it. Lines that are cut short or broken
/// are left out, fields that are missing are nothing, and those it does not know are skipped.
class HistoryReader {
 public:
  /// Throws: ErrorKind::input if `folder` is none, or there is nothing of a run in it.
  explicit HistoryReader(std::filesystem::path folder);

  const RunHistory& history() const { return history_; }
  /// Takes in what was written meanwhile.
  const RunHistory& update();

 private:
  void read_metrics();
  void read_deck();
  void read_checkpoints();
  void take_line(std::string_view line);

  RunHistory history_;
  std::vector<std::int64_t> listed_;        ///< steps in the folder, of whatever branch
  double noted_unix_s_ = 0;                 ///< when the run's note was written
  std::vector<std::int64_t> branch_steps_;  ///< of `listed_`, as they were then
  std::string other_branches_;              ///< likewise
  std::int64_t offset_ = 0;                 ///< of metrics.jsonl, up to the end of a line
  std::string last_line_;  ///< before `offset_`: if it is another now, the file was cut
  std::uintmax_t inode_ = 0;
};

RunHistory read_run(const std::filesystem::path& folder);

/// Calls `use(row)` for each line of metrics.jsonl in `folder` that is a JSON object.
void for_each_row(const std::filesystem::path& folder,
                  const std::function<void(const core::Json&)>& use);

}  // namespace finetune::report
