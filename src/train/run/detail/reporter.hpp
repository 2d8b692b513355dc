#pragma once
// SPDX-License-Identifier: Apache-2.0
// What a run prints, and writes to metrics.jsonl and for TensorBoard, from its first step on.

#include <cstdint>
#include <optional>
#include <string>

#include "checkpoint/format/layout.hpp"
#include "checkpoint/save/save.hpp"
#include "metrics/progress.hpp"
#include "metrics/records.hpp"
#include "metrics/tensorboard/event_file.hpp"
#include "train/infer/evaluate.hpp"

namespace finetune::train {

/// Where rows go, on the root; elsewhere neither is there.
struct ReportFiles {
  std::optional<metrics::RecordFile> metrics = {};
  std::optional<metrics::EventFile> events = {};  ///< none without metrics.tensorboard, too
};

/// Every rank has one; those without files write no rows, and those with a silent `style` show no
/// progress. Nothing here is a collective.
class Reporter {
 public:
  /// `log_steps`: steps between two lines.
  Reporter(metrics::Progress::Style style, std::int64_t num_steps, std::int64_t log_steps,
           ReportFiles files);

  /// A line of its own, beside the progress.
  void info(const std::string& text);
  void warn(const std::string& text);
  /// What others print comes next.
  void pause() { progress_.pause(); }

  void step(const metrics::StepRecord& record);
  /// What was printed already.
  void answered(const metrics::AnswersRecord& record);
  /// For TensorBoard alone.
  void show(const std::string& tag, std::int64_t step, const std::string& text);
  void saved(const checkpoint::SaveReport& report, checkpoint::Level level);
  /// `when`: "before training". `has_answers`: exact matches mean something. `ema_loss`: that of
  /// the mean of the weights.
  void validated(const std::string& when, std::int64_t step, const Evaluation& result,
                 bool has_answers, std::optional<double> ema_loss = {});

  /// `table`: what the log shows.
  void evaluated(const std::string& table, const metrics::EvaluationRecord& record);

  /// Seconds of a usual step of this start.
  double median_step_s() const { return progress_.meter().median_step_s(); }
  /// What is in metrics.jsonl; 0 where this rank writes none.
  std::int64_t metrics_bytes() const { return files_.metrics ? files_.metrics->size_bytes() : 0; }
  /// All rows so far are on disk when it returns, events as far as they can be. Throws:
  /// ErrorKind::io.
  void sync_metrics();

 private:
  template <typename Record>
  void write(const Record& record);
  void write_event(metrics::Event event);
  /// Calls `append`, and says once what is lost if that fails.
  template <typename Append>
  void attempt(const char* what, bool& is_lost, const Append& append);

  metrics::Progress progress_;
  ReportFiles files_;
  bool rows_are_lost_ = false;
  bool events_are_lost_ = false;
};

}  // namespace finetune::train
