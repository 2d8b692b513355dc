// SPDX-License-Identifier: Apache-2.0
#include "report/detail/rows.hpp"

#include <array>
#include <charconv>
#include <ctime>
#include <limits>

#include "core/error.hpp"
#include "metrics/step_times.hpp"

namespace finetune::report::detail {
namespace {

constexpr double none = std::numeric_limits<double>::quiet_NaN();

const core::Json* object_of(const core::Json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found != object.end() && found->is_object() ? &*found : nullptr;
}

std::int64_t whole_of(const core::Json& object, const char* name, std::int64_t otherwise) {
  const auto number = number_of(object, name);
  return number ? static_cast<std::int64_t>(*number) : otherwise;
}

}  // namespace

core::Json parsed_row(std::string_view line) {
  try {
    core::Json row = core::parse_json(line, "a row");
    return row.is_object() ? row : core::Json();
  } catch (const core::Error&) {
    return {};
  }
}

std::optional<double> number_of(const core::Json& object, const char* name) {
  if (!object.is_object()) return std::nullopt;
  const auto found = object.find(name);
  if (found == object.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

std::string text_of(const core::Json& object, const char* name) {
  if (!object.is_object()) return "";
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

std::optional<std::int64_t> whole_number(const std::string& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<std::int64_t> step_of(const core::Json& row) {
  const auto found = row.find("step");
  if (found == row.end() || !found->is_number_integer()) return std::nullopt;
  return found->get<std::int64_t>();
}

std::string time_text(double unix_time_s) {
  if (!(unix_time_s > 0) || unix_time_s > 1e11) return "";
  const auto time = static_cast<std::time_t>(unix_time_s);
  std::tm local = {};
  ::localtime_r(&time, &local);
  std::array<char, 32> text = {};
  return {text.data(), std::strftime(text.data(), text.size(), "%F %T", &local)};
}

StepRow step_row(std::int64_t step, const core::Json& row) {
  const auto number = [&](const char* name) { return number_of(row, name).value_or(none); };
  return {.step = step,
          .loss = number("loss"),
          .grad_norm = number("grad_norm"),
          .lr = number("lr"),
          .tokens = number("tokens"),
          .tokens_per_s = number("tokens_per_s"),
          .step_s = number("step_s"),
          .epoch = number_of(row, "epoch"),
          .mfu = number_of(row, "mfu"),
          .unix_time_s = number_of(row, "unix_time_s")};
}

namespace {

/// Of least, median and most.
std::optional<Spread> spread_in(const core::Json& part) {
  if (!part.is_array() || part.size() != 3) return std::nullopt;
  if (!part[0].is_number() || !part[1].is_number() || !part[2].is_number()) return std::nullopt;
  return Spread{part[0].get<double>(), part[1].get<double>(), part[2].get<double>()};
}

}  // namespace

std::optional<DevicesRow> devices_row(std::int64_t step, const core::Json& row) {
  const core::Json* devices = object_of(row, "devices");
  if (devices == nullptr) return std::nullopt;
  DevicesRow out{.step = step};
  for (const auto& [name, value] : devices->items())
    if (const auto spread = spread_in(value)) out.values[name] = *spread;
  const auto slow = devices->find("slow");
  if (slow == devices->end() || !slow->is_array()) return out;
  for (const core::Json& each : *slow)
    if (each.is_object())
      out.slow.push_back({whole_of(each, "rank", -1), text_of(each, "host"), text_of(each, "why")});
  return out;
}

std::optional<LinksRow> links_row(std::int64_t step, const core::Json& row) {
  const core::Json* links = object_of(row, "links");
  if (links == nullptr) return std::nullopt;
  LinksRow out{.step = step};
  if (const core::Json* rates = object_of(*links, "bytes_per_s"))
    for (const auto& [axis, value] : rates->items())
      if (const auto spread = spread_in(value)) {
        out.bytes_per_s[axis] = *spread;
        if (const core::Json* nodes = object_of(*links, "slowest_nodes"))
          out.slowest_nodes[axis] = text_of(*nodes, axis.c_str());
      }
  const auto slow = links->find("slow");
  if (slow == links->end() || !slow->is_array()) return out;
  for (const core::Json& each : *slow)
    if (each.is_object())
      out.slow.push_back({text_of(each, "axis"), text_of(each, "nodes"),
                          number_of(each, "bytes_per_s").value_or(none),
                          number_of(each, "usual_bytes_per_s").value_or(none)});
  return out;
}

std::optional<TimesRow> times_row(std::int64_t step, const core::Json& row) {
  const core::Json* times = object_of(row, "times");
  if (times == nullptr) return std::nullopt;
  TimesRow out{.step = step, .num_steps = whole_of(*times, "steps", 1)};
  for (const char* name : metrics::StepTimes::names) {
    const auto found = times->find(name);
    if (found == times->end()) continue;
    if (const auto spread = spread_in(*found)) out.parts.emplace_back(name, *spread);
  }
  out.slowest_rank = whole_of(*times, "slowest_rank", -1);
  out.slowest_host = text_of(*times, "slowest_host");
  if (const core::Json* sent = object_of(row, "sent_bytes")) {
    for (const auto& [axis, bytes] : sent->items())
      if (bytes.is_number()) out.sent_bytes[axis] = bytes.get<double>();
  }
  return out;
}

std::optional<MemoryRow> memory_row(std::int64_t step, const core::Json& row) {
  const core::Json* peak = object_of(row, "peak_bytes");
  if (peak == nullptr) return std::nullopt;
  return MemoryRow{step, number_of(*peak, "tensors").value_or(0),
                   number_of(*peak, "process").value_or(0)};
}

ValidationRow validation_row(std::int64_t step, const core::Json& row) {
  return {step, number_of(row, "validation_loss").value_or(none), number_of(row, "exact_match")};
}

CheckpointRow checkpoint_row(std::int64_t step, const core::Json& saved) {
  const auto number = [&](const char* name) { return number_of(saved, name).value_or(0); };
  return {step,
          text_of(saved, "level"),
          number("bytes"),
          number("blocked_s"),
          number("write_s"),
          number("total_s")};
}

EvaluationRow evaluation_row(std::int64_t step, const core::Json& evaluation) {
  EvaluationRow out{.step = step};
  if (!evaluation.is_array()) return out;
  for (const core::Json& one : evaluation) {
    const auto value = number_of(one, "value");
    if (!value || text_of(one, "name").empty()) continue;
    out.measured.push_back(
        {text_of(one, "name"), *value, number_of(one, "standard_error").value_or(none)});
  }
  return out;
}

AnswersRow answers_row(std::int64_t step, const core::Json& answers) {
  AnswersRow out{.step = step, .answers = {}};
  if (!answers.is_array()) return out;
  for (const core::Json& one : answers)
    out.answers.push_back(
        {text_of(one, "prompt"), text_of(one, "answer"), text_of(one, "expected")});
  return out;
}

std::optional<Start> start_row(const core::Json& row) {
  const core::Json* facts = object_of(row, "start");
  if (facts == nullptr) return std::nullopt;
  return Start{.step = whole_of(*facts, "step", 0),
               .unix_time_s = number_of(*facts, "unix_time_s").value_or(0),
               .facts = *facts};
}

std::optional<Start::End> end_row(const core::Json& row) {
  const core::Json* end = object_of(row, "end");
  if (end == nullptr) return std::nullopt;
  return Start::End{.step = whole_of(*end, "step", 0),
                    .unix_time_s = number_of(*end, "unix_time_s").value_or(0),
                    .exit_code = static_cast<int>(whole_of(*end, "exit_code", 0)),
                    .reason = text_of(*end, "reason")};
}

}  // namespace finetune::report::detail
