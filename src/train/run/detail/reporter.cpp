// SPDX-License-Identifier: Apache-2.0
#include "train/run/detail/reporter.hpp"

#include <fmt/format.h>

#include <utility>

#include "core/error.hpp"
#include "core/log.hpp"
#include "core/text.hpp"
#include "metrics/tensorboard/record_events.hpp"

namespace finetune::train {

Reporter::Reporter(metrics::Progress::Style style, std::int64_t num_steps, std::int64_t log_steps,
                   ReportFiles files)
    : progress_(style, num_steps, log_steps), files_(std::move(files)) {}

void Reporter::info(const std::string& text) {
  progress_.pause();
  log::info(text);
}

void Reporter::warn(const std::string& text) {
  progress_.pause();
  log::warn(text);
}

void Reporter::step(const metrics::StepRecord& record) {
  progress_.step(record);
  write(record);
}

void Reporter::answered(const metrics::AnswersRecord& record) {
  write(record);
}

void Reporter::show(const std::string& tag, std::int64_t step, const std::string& text) {
  if (files_.events) write_event({.step = step, .texts = {{tag, text}}});
}

void Reporter::saved(const checkpoint::SaveReport& report, checkpoint::Level level) {
  std::string text =
      fmt::format("saved {}: {}, training blocked {:.2f} s, written in {:.2f} s ({:.2f} GB/s)",
                  report.folder.string(), core::human_bytes(report.payload_bytes), report.blocked_s,
                  report.write_s, report.write_gb_per_s());
  if (report.read_back_s > 0) text += fmt::format(", read back in {:.2f} s", report.read_back_s);
  info(text + fmt::format(", {:.2f} s in all", report.total_s));
  const bool is_shared = level == checkpoint::Level::shared;
  write(metrics::CheckpointRecord{.step = report.step,
                                  .level = is_shared ? "shared" : "local",
                                  .bytes = report.payload_bytes,
                                  .blocked_s = report.blocked_s,
                                  .write_s = report.write_s,
                                  .read_back_s = report.read_back_s,
                                  .total_s = report.total_s});
}

void Reporter::validated(const std::string& when, std::int64_t step, const Evaluation& result,
                         bool has_answers, std::optional<double> ema_loss) {
  metrics::ValidationRecord record{.step = step,
                                   .validation_loss = result.loss,
                                   .exact_match = std::nullopt,
                                   .ema_validation_loss = ema_loss};
  std::string text = fmt::format("{}: validation loss {:.4f}", when, result.loss);
  if (has_answers) {
    record.exact_match = result.exact_match;
    text +=
        fmt::format(", exact match {:.1f} % of {}", 100 * result.exact_match, result.num_samples);
  }
  if (ema_loss) text += fmt::format("; of the mean of the weights {:.4f}", *ema_loss);
  info(text);
  write(record);
}

void Reporter::evaluated(const std::string& table, const metrics::EvaluationRecord& record) {
  info(table);
  write(record);
}

void Reporter::sync_metrics() {
  if (files_.metrics) files_.metrics->sync();
  if (files_.events)
    attempt("events for TensorBoard", events_are_lost_, [&] { files_.events->sync(); });
}

template <typename Record>
void Reporter::write(const Record& record) {
  if (files_.metrics)
    attempt("rows of metrics.jsonl", rows_are_lost_,
            [&] { files_.metrics->append(metrics::to_json(record)); });
  if (files_.events) write_event(metrics::event_of(record));
}

void Reporter::write_event(metrics::Event event) {
  attempt("events for TensorBoard", events_are_lost_,
          [&] { files_.events->add(std::move(event)); });
}

template <typename Append>
void Reporter::attempt(const char* what, bool& is_lost, const Append& append) {
  try {
    append();
  } catch (const core::Error& error) {
    // A full disk must not end a run that could go on without these.
    if (std::exchange(is_lost, true)) return;
    warn(fmt::format("{} are lost: {}", what, error.what()));
  }
}

}  // namespace finetune::train
