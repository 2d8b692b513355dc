// SPDX-License-Identifier: Apache-2.0
#include "metrics/records.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/fault.hpp"
#include "core/json.hpp"
#include "core/log.hpp"
#include "core/text.hpp"

namespace finetune::metrics {
namespace {

/// JSON has no NaN or infinity.
std::string number(double value) {
  return std::isfinite(value) ? core::round_trip(value) : "null";
}

/// An object by layer.
std::string to_json(const std::vector<LayerNorm>& norms) {
  std::string text;
  for (const LayerNorm& norm : norms)
    text += fmt::format(R"({}"{}": {{"weight": {}, "gradient": {}}})", text.empty() ? "{" : ", ",
                        norm.layer, number(norm.weight), number(norm.gradient));
  return text + "}";
}

core::File open_at(const std::filesystem::path& path, std::int64_t keep_bytes) {
  std::error_code ignored;
  const bool exists = std::filesystem::exists(path, ignored);
  core::File file(path, exists ? core::File::Mode::write_existing : core::File::Mode::create_new,
                  core::ErrorKind::create);
  if (file.size_bytes() < keep_bytes) {
    log::warn(
        fmt::format("{} has {} bytes, the checkpoint knows of {}: rows of earlier steps are "
                    "missing in it",
                    path.string(), file.size_bytes(), keep_bytes));
  }
  file.cut(std::min(keep_bytes, file.size_bytes()));
  return file;
}

}  // namespace

std::string to_json(const StepRecord& r) {
  std::string text = fmt::format(
      R"({{"step": {}, "loss": {}, "grad_norm": {}, "lr": {}, "tokens": {}, "tokens_per_s": {}, "step_s": {}, "padding": {})",
      r.step, number(r.loss), number(r.grad_norm), number(r.lr), r.tokens, number(r.tokens_per_s),
      number(r.step_s), number(r.padding));
  const auto add = [&](const char* name, const std::optional<double>& value) {
    if (value) text += fmt::format(R"(, "{}": {})", name, number(*value));
  };
  add("epoch", r.epoch);
  add("balance_loss", r.balance_loss);
  if (r.total_samples) text += fmt::format(R"(, "total_samples": {})", *r.total_samples);
  if (r.total_tokens) text += fmt::format(R"(, "total_tokens": {})", *r.total_tokens);
  add("tokens_per_s_per_rank", r.tokens_per_s_per_rank);
  add("tflops_per_rank", r.tflops_per_rank);
  add("mfu", r.mfu);
  add("unix_time_s", r.unix_time_s);
  if (r.noise) {
    add("noise_scale", r.noise->scale);
    add("noise_scale_tokens", r.noise->scale_tokens);
    add("noise_trace", r.noise->trace);
    add("noise_squares", r.noise->squares);
  }
  if (!r.norms.empty()) text += R"(, "norms": )" + to_json(r.norms);
  if (r.times) text += ", " + to_json_fields(*r.times);
  if (r.devices && !r.devices->is_empty()) text += ", " + to_json_field(*r.devices);
  if (r.links && !r.links->is_empty()) text += ", " + to_json_field(*r.links);
  return text + "}";
}

std::string to_json(const ValidationRecord& r) {
  std::string text =
      fmt::format(R"({{"step": {}, "validation_loss": {})", r.step, number(r.validation_loss));
  if (r.exact_match) text += fmt::format(R"(, "exact_match": {})", number(*r.exact_match));
  if (r.ema_validation_loss)
    text += fmt::format(R"(, "ema_validation_loss": {})", number(*r.ema_validation_loss));
  return text + "}";
}

std::string to_json(const EvaluationRecord& r) {
  std::string figures;
  for (const TaskFigure& figure : r.figures)
    figures +=
        fmt::format(R"({}{{"name": {}, "value": {}, "standard_error": {}}})",
                    figures.empty() ? "" : ", ", core::Json(core::printable(figure.name)).dump(),
                    number(figure.value), number(figure.standard_error));
  return fmt::format(R"({{"step": {}, "evaluation": [{}]}})", r.step, figures);
}

std::string to_json(const CheckpointRecord& r) {
  return fmt::format(
      R"({{"step": {}, "checkpoint": {{"level": "{}", "bytes": {}, "blocked_s": {}, "write_s": {}, "read_back_s": {}, "total_s": {}}}}})",
      r.step, r.level, r.bytes, number(r.blocked_s), number(r.write_s), number(r.read_back_s),
      number(r.total_s));
}

std::string to_json(const ResumeRecord& r) {
  return fmt::format(R"({{"step": {}, "resume": {{"bytes": {}, "read_s": {}}}}})", r.step, r.bytes,
                     number(r.read_s));
}

std::string to_json(const AnswersRecord& r) {
  core::Json answers = core::Json::array();
  for (const Answer& a : r.answers)
    answers.push_back({{"prompt", core::printable(a.prompt)},
                       {"answer", core::printable(a.answer)},
                       {"expected", core::printable(a.expected)}});
  return fmt::format(R"({{"step": {}, "answers": {}}})", r.step, answers.dump());
}

RecordFile::RecordFile(const std::filesystem::path& path, std::int64_t keep_bytes)
    : file_(open_at(path, keep_bytes)), size_bytes_(file_.size_bytes()) {}

void RecordFile::append(const std::string& line) {
  core::fault::hit("metrics.append", file_.path().native());
  const std::string text = line + "\n";
  file_.write_at(size_bytes_, std::as_bytes(std::span(text)));
  size_bytes_ += std::ssize(text);
}

}  // namespace finetune::metrics
