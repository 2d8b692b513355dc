#pragma once
// SPDX-License-Identifier: Apache-2.0
// metrics.jsonl: one object per step, with numbers that read back bitwise identical.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/file.hpp"
#include "metrics/device_use.hpp"
#include "metrics/links.hpp"
#include "metrics/step_times.hpp"

namespace finetune::metrics {

/// Of what is trained in a layer.
struct LayerNorm {
  int stage = 0;      ///< the embedding 0, block i 1 + i, the head last
  std::string layer;  ///< "embedding", "block 3", "head"
  double weight = 0;  ///< before the step's update
  double gradient = 0;
};

/// How much gradients of micro-batches differ (train/step/noise.hpp).
struct NoiseReport {
  double trace = 0;                         ///< S, of this step
  double squares = 0;                       ///< |G|^2, of this step
  std::optional<double> scale = {};         ///< S / |G|^2, both smoothed, in sequences
  std::optional<double> scale_tokens = {};  ///< the same in trained tokens
};

struct StepRecord {
  std::int64_t step = 0;  ///< counts from 1: the number of updates done
  double loss = 0;        ///< mean over the step's trained tokens
  double grad_norm = 0;   ///< before clipping
  double lr = 0;
  std::int64_t tokens = 0;  ///< positions computed, padding left out
  double tokens_per_s = 0;
  double step_s = 0;
  double padding = 0;                              ///< part of all positions computed
  std::optional<double> epoch = {};                ///< passes over the data that are done: 1.25
  std::optional<double> balance_loss = {};         ///< of experts, where it is part of the training
  std::optional<std::int64_t> total_samples = {};  ///< trained on in all steps so far
  std::optional<std::int64_t> total_tokens = {};   ///< the sum of `tokens`
  std::optional<double> tokens_per_s_per_rank = {};
  std::optional<double> tflops_per_rank = {};  ///< arithmetic of the model, 1e12 a second
  std::optional<double> mfu = {};              ///< the same, as part of the device's peak
  std::optional<double> unix_time_s = {};      ///< when the step was done
  std::vector<LayerNorm> norms = {};           ///< by stage; empty: nobody asked
  std::optional<NoiseReport> noise = {};       ///< if somebody asked
  std::optional<TimeReport> times = {};        ///< of the steps since the last that had one
  std::optional<DeviceReport> devices = {};    ///< likewise
  std::optional<LinkReport> links = {};        ///< likewise
};

struct ValidationRecord {
  std::int64_t step = 0;
  double validation_loss = 0;
  std::optional<double>
      exact_match;  ///< part of the samples whose every trained token is the most likely one
  std::optional<double> ema_validation_loss = {};  ///< of the mean of the weights
};

/// A figure of a task.
struct TaskFigure {
  std::string name;  ///< "TASK/METRIC"
  double value = 0;
  double standard_error = 0;
};

/// What the model made of tasks.
struct EvaluationRecord {
  std::int64_t step = 0;
  std::vector<TaskFigure> figures;
};

/// A save that is done.
struct CheckpointRecord {
  std::int64_t step = 0;
  std::string level;       ///< "shared" or "local"
  std::int64_t bytes = 0;  ///< of tensors, over all ranks
  double blocked_s = 0;    ///< training waited
  double write_s = 0;      ///< of the slowest rank, synced
  double read_back_s = 0;  ///< the same
  double total_s = 0;      ///< until the checkpoint counted
};

/// A start from a checkpoint.
struct ResumeRecord {
  std::int64_t step = 0;
  std::int64_t bytes = 0;  ///< read from files, over all ranks
  double read_s = 0;
};

/// The model's answer to a question that it was not trained on.
struct Answer {
  std::string prompt;
  std::string answer;
  std::string expected;
};

struct AnswersRecord {
  std::int64_t step = 0;
  std::vector<Answer> answers;
};

std::string to_json(const StepRecord& record);
std::string to_json(const ValidationRecord& record);
std::string to_json(const EvaluationRecord& record);
std::string to_json(const CheckpointRecord& record);
std::string to_json(const ResumeRecord& record);
std::string to_json(const AnswersRecord& record);

/// Appends lines to a file. Only the root rank has one.
class RecordFile {
 public:
  /// Continues a file at `keep_bytes`: what a killed run wrote after its last checkpoint goes. A
  /// shorter one has lost rows, which is a warning.
  RecordFile(const std::filesystem::path& path, std::int64_t keep_bytes);

  void append(const std::string& line);
  /// What was appended is on disk when it returns: before a checkpoint that counts on it.
  void sync() const { file_.sync(); }
  std::int64_t size_bytes() const { return size_bytes_; }

 private:
  core::File file_;
  std::int64_t size_bytes_;
};

}  // namespace finetune::metrics
