// SPDX-License-Identifier: Apache-2.0
#include "metrics/tensorboard/record_events.hpp"

#include <cmath>
#include <optional>

#include "core/text.hpp"

namespace finetune::metrics {
namespace {

double gib(std::int64_t bytes) {
  return static_cast<double>(bytes) / (1 << 30);
}

template <typename Number>
void add(Event& event, const char* tag, const std::optional<Number>& number) {
  if (number) event.numbers.push_back({tag, static_cast<double>(*number)});
}

/// Middle and slowest of the ranks, and what the root sent and waited for by mesh axis.
void add_times(Event& event, const TimeReport& report) {
  for (std::size_t i = 0; i < report.parts.size(); ++i) {
    const std::string part = StepTimes::names[i];
    event.numbers.push_back({"time/" + part, report.parts[i].median});
    event.numbers.push_back({"time_most/" + part, report.parts[i].max});
  }
  for (const auto& [axis, bytes] : report.sent_bytes)
    if (bytes > 0) event.numbers.push_back({"sent/" + axis + "_gib", gib(bytes)});
  for (const auto& [axis, seconds] : report.exposed_s)
    event.numbers.push_back({"time_exposed/" + axis + "_s", seconds});
  if (report.peak.process <= 0) return;
  event.numbers.push_back({"memory/peak_tensors_gib", gib(report.peak.tensors)});
  event.numbers.push_back({"memory/peak_process_gib", gib(report.peak.process)});
}

/// Middle and most of the ranks: "devices/gpu_use", "devices_most/gpu_use".
void add_devices(Event& event, const DeviceReport& report) {
  for (const auto& [name, spread] : report.values) {
    event.numbers.push_back({"devices/" + name, spread.median});
    event.numbers.push_back({"devices_most/" + name, spread.max});
  }
  if (report.gpu_energy_j > 0)
    event.numbers.push_back({"devices/gpu_energy_j", report.gpu_energy_j});
  if (report.cpu_energy_j > 0)
    event.numbers.push_back({"devices/cpu_energy_j", report.cpu_energy_j});
}

/// Middle and slowest of an axis' groups: "links/fsdp_gb_per_s", "links_least/fsdp_gb_per_s".
void add_links(Event& event, const LinkReport& report) {
  for (const auto& [axis, of] : report.axes) {
    event.numbers.push_back({"links/" + axis + "_gb_per_s", of.bytes_per_s.median / 1e9});
    event.numbers.push_back({"links_least/" + axis + "_gb_per_s", of.bytes_per_s.min / 1e9});
  }
}

/// A bar for each layer: block i from i to i + 1, the embedding before, the head behind them.
void add_norms(Event& event, const std::vector<LayerNorm>& norms) {
  const int first = norms.front().stage, count = norms.back().stage - first + 1;
  const auto bars_of = [&](const char* tag, double LayerNorm::*norm) {
    EventBars bars{tag, static_cast<double>(first - 1),
                   std::vector<double>(static_cast<std::size_t>(count))};
    for (const LayerNorm& each : norms)  // a height is a count to TensorBoard: no NaN
      if (std::isfinite(each.*norm))
        bars.heights[static_cast<std::size_t>(each.stage - first)] = each.*norm;
    return bars;
  };
  event.bars.push_back(bars_of("norms_by_layer/weight", &LayerNorm::weight));
  event.bars.push_back(bars_of("norms_by_layer/gradient", &LayerNorm::gradient));
}

}  // namespace

Event event_of(const StepRecord& r) {
  Event event{.step = r.step,
              .numbers = {{"train/loss", r.loss},
                          {"train/grad_norm", r.grad_norm},
                          {"train/lr", r.lr},
                          {"train/padding", r.padding},
                          {"speed/tokens_per_s", r.tokens_per_s},
                          {"speed/step_s", r.step_s}}};
  add(event, "train/epoch", r.epoch);
  add(event, "train/balance_loss", r.balance_loss);
  add(event, "train/total_samples", r.total_samples);
  add(event, "train/total_tokens", r.total_tokens);
  add(event, "speed/tokens_per_s_per_rank", r.tokens_per_s_per_rank);
  add(event, "speed/tflops_per_rank", r.tflops_per_rank);
  add(event, "speed/mfu", r.mfu);
  if (r.times) add_times(event, *r.times);
  if (r.devices) add_devices(event, *r.devices);
  if (r.links) add_links(event, *r.links);
  if (!r.norms.empty()) add_norms(event, r.norms);
  if (r.noise) {
    add(event, "noise/scale", r.noise->scale);
    add(event, "noise/scale_tokens", r.noise->scale_tokens);
  }
  return event;
}

Event event_of(const ValidationRecord& r) {
  Event event{.step = r.step, .numbers = {{"validation/loss", r.validation_loss}}};
  add(event, "validation/exact_match", r.exact_match);
  add(event, "validation/ema_loss", r.ema_validation_loss);
  return event;
}

Event event_of(const EvaluationRecord& r) {
  Event event{.step = r.step};
  for (const TaskFigure& figure : r.figures)
    event.numbers.emplace_back("evaluation/" + figure.name, figure.value);
  return event;
}

Event event_of(const CheckpointRecord& r) {
  const std::string group = r.level == "local" ? "checkpoint_local/" : "checkpoint/";
  return {.step = r.step,
          .numbers = {{group + "blocked_s", r.blocked_s},
                      {group + "write_s", r.write_s},
                      {group + "read_back_s", r.read_back_s},
                      {group + "total_s", r.total_s},
                      {group + "gib", gib(r.bytes)}}};
}

Event event_of(const ResumeRecord& r) {
  return {.step = r.step, .numbers = {{"resume/read_s", r.read_s}, {"resume/gib", gib(r.bytes)}}};
}

Event event_of(const AnswersRecord& r) {
  std::string text;
  for (const Answer& a : r.answers)
    text += a.prompt + "\n  answer:   " + a.answer + "\n  expected: " + a.expected + "\n\n";
  return {.step = r.step, .texts = {{"answers", as_code(core::printable(text))}}};
}

}  // namespace finetune::metrics
