// SPDX-License-Identifier: Apache-2.0
#include "train/run/detail/reporter.hpp"

#include <fmt/format.h>

#include <utility>

#include "core/error.hpp"
#include "core/log.hpp"
#include "core/text.hpp"

namespace finetune::train {

Reporter::Reporter(metrics::Progress::Style style, std::int64_t num_steps, std::int64_t log_steps,
                   std::optional<metrics::RecordFile> metrics)
    : progress_(style, num_steps, log_steps), metrics_(std::move(metrics)) {}

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
  write_row(metrics::to_json(record));
}

void Reporter::saved(const checkpoint::SaveReport& report, checkpoint::Level level) {
  std::string text =
      fmt::format("saved {}: {}, training blocked {:.2f} s, written in {:.2f} s ({:.2f} GB/s)",
                  report.folder.string(), core::human_bytes(report.payload_bytes), report.blocked_s,
                  report.write_s, report.write_gb_per_s());
  if (report.read_back_s > 0) text += fmt::format(", read back in {:.2f} s", report.read_back_s);
  info(text + fmt::format(", {:.2f} s in all", report.total_s));
  const bool is_shared = level == checkpoint::Level::shared;
  write_row(metrics::to_json(metrics::CheckpointRecord{.step = report.step,
                                                       .level = is_shared ? "shared" : "local",
                                                       .bytes = report.payload_bytes,
                                                       .blocked_s = report.blocked_s,
                                                       .write_s = report.write_s,
                                                       .read_back_s = report.read_back_s,
                                                       .total_s = report.total_s}));
}

void Reporter::validated(const std::string& when, std::int64_t step, const Evaluation& result,
                         bool has_answers) {
  metrics::ValidationRecord record{
      .step = step, .validation_loss = result.loss, .exact_match = std::nullopt};
  std::string text = fmt::format("{}: validation loss {:.4f}", when, result.loss);
  if (has_answers) {
    record.exact_match = result.exact_match;
    text +=
        fmt::format(", exact match {:.1f} % of {}", 100 * result.exact_match, result.num_samples);
  }
  info(text);
  write_row(metrics::to_json(record));
}

void Reporter::sync_metrics() const {
  if (metrics_) metrics_->sync();
}

void Reporter::write_row(const std::string& row) {
  if (!metrics_) return;
  try {
    metrics_->append(row);
  } catch (const core::Error& error) {
    // A full disk must not end a run that could go on without these rows.
    if (std::exchange(rows_are_lost_, true)) return;
    warn(fmt::format("rows of metrics.jsonl are lost: {}", error.what()));
  }
}

}  // namespace finetune::train
