#pragma once
// SPDX-License-Identifier: Apache-2.0
// A training job in a folder of its own: model, data, deck; started, stopped and compared by tests.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/json.hpp"
#include "support/residence.hpp"
#include "support/run_program.hpp"

namespace finetune::tests {

/// Settings, or words of a command.
using Words = std::vector<std::string>;

/// `words`, and `more` behind them.
inline Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

/// The small Llama of tests/golden with a tokenizer, and instructions that do not divide evenly
/// into batches.
class Job {
 public:
  /// `settings` are lines `table.key=value` that every start gets.
  Job(const std::string& name, std::vector<std::string> settings);

  const std::filesystem::path& folder() const { return folder_; }
  std::filesystem::path output() const { return folder_ / "output"; }
  std::filesystem::path model() const { return folder_ / "model"; }
  std::filesystem::path data() const { return folder_ / "data.json"; }

  /// The program's arguments, with `more` settings for this start alone.
  std::vector<std::string> arguments(const std::vector<std::string>& more = {}) const;
  /// The words that start it in processes of its own.
  std::vector<std::string> command(int ranks, const std::vector<std::string>& more = {}) const;
  /// By run_finetune: in processes that stay, where it may.
  Outcome run(int ranks, const std::vector<std::string>& more = {}) const;

  /// Rows of metrics.jsonl, without those about data, saves and starts.
  std::vector<core::Json> metrics() const;
  /// Rows of optimizer steps, without validation.
  std::vector<core::Json> steps() const;

  /// Bytes of the safetensors file that `finetune export` makes of the newest checkpoint: of the
  /// model, or of the adapter that was trained.
  std::string exported() const;
  /// Bytes of the HDF5 file of a checkpoint: weights and moments.
  std::string checkpoint_bytes(std::int64_t step) const;

 private:
  std::filesystem::path folder_;
  std::vector<std::string> settings_;
};

/// A job that trains a model of tests/golden/models instead.
Job family_job(const std::string& family, const std::string& name,
               const std::vector<std::string>& settings);

/// Settings of a short run with everything on that a restart has to carry: accumulation, a last
/// batch that is smaller, warm-up, clipping, weight decay, validation.
std::vector<std::string> short_run(const std::string& precision, int max_steps = 20);

/// The same numbers to the last bit in all rows, besides times.
void expect_same_metrics(const Job& job, const Job& reference);

/// Runs `job` until its metrics hold `step`, then kills every process of it. False if it came to
/// its end before.
bool kill_after(const Job& job, int ranks, int step);

std::string read_file(const std::filesystem::path& path);
void write_file(const std::filesystem::path& path, const std::string& text);

}  // namespace finetune::tests
