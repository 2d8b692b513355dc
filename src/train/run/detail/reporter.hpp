#pragma once
// SPDX-License-Identifier: Apache-2.0
// What a run prints, and writes to metrics.jsonl, from its first step on.

#include <cstdint>
#include <optional>
#include <string>

#include "checkpoint/format/layout.hpp"
#include "checkpoint/save/save.hpp"
#include "metrics/progress.hpp"
#include "metrics/records.hpp"
#include "train/infer/evaluate.hpp"

namespace finetune::train {

/// Every rank has one; those without `metrics` write no rows, and those with a silent `style` show
/// no progress. Nothing here is a collective.
class Reporter {
 public:
  /// `log_steps`: steps between two lines.
  Reporter(metrics::Progress::Style style, std::int64_t num_steps, std::int64_t log_steps,
           std::optional<metrics::RecordFile> metrics);

  /// A line of its own, beside the progress.
  void info(const std::string& text);
  void warn(const std::string& text);
  /// What others print comes next.
  void pause() { progress_.pause(); }

  void step(const metrics::StepRecord& record);
  void saved(const checkpoint::SaveReport& report, checkpoint::Level level);
  /// `when`: "before training". `has_answers`: exact matches mean something.
  void validated(const std::string& when, std::int64_t step, const Evaluation& result,
                 bool has_answers);

  /// Seconds of a usual step of this start.
  double median_step_s() const { return progress_.meter().median_step_s(); }
  /// What is in metrics.jsonl; 0 where this rank writes none.
  std::int64_t metrics_bytes() const { return metrics_ ? metrics_->size_bytes() : 0; }
  /// All rows so far are on disk when it returns. Throws: ErrorKind::io.
  void sync_metrics() const;

 private:
  void write_row(const std::string& row);

  metrics::Progress progress_;
  std::optional<metrics::RecordFile> metrics_;
  bool rows_are_lost_ = false;
};

}  // namespace finetune::train
