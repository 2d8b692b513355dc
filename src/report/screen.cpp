// SPDX-License-Identifier: Apache-2.0
#include "report/screen.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "core/text.hpp"
#include "metrics/progress.hpp"
#include "plot/smooth.hpp"
#include "report/detail/rows.hpp"
#include "report/pictures.hpp"

namespace finetune::report {
namespace {

using metrics::human_seconds;

constexpr std::size_t most_plot_rows = 12;

/// The first `columns` letters.
std::string clipped(const std::string& text, std::size_t columns) {
  std::size_t letters = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool continues = (static_cast<unsigned char>(text[i]) & 0xc0) == 0x80;
    if (!continues && letters++ == columns) return text.substr(0, i);
  }
  return text;
}

std::string row(const char* name, const std::string& text) {
  return text.empty() ? "" : fmt::format("{:<11}{}", name, text);
}

plot::Points smooth_loss(const RunHistory& run) {
  plot::Points points;
  for (const StepRow& step : run.steps)
    points.emplace_back(static_cast<double>(step.step), step.loss);
  return plot::smoothed(points, plot::usual_weight(points.size()));
}

std::string progress(const RunHistory& run, const Verdict& verdict, plot::Letters letters) {
  const auto steps = run.num_steps();
  if (!steps || *steps <= 0) return fmt::format("step {}", run.last_step());
  const double part = static_cast<double>(run.last_step()) / static_cast<double>(*steps);
  std::string text = fmt::format("{}  step {} of {}  {:.0f} %", plot::text_bar(part, 24, letters),
                                 run.last_step(), *steps, 100 * part);
  const auto left = seconds_left(run);
  if (left && verdict.state != RunState::finished)
    text += fmt::format("  {} left", human_seconds(*left));
  return text;
}

std::string losses(const RunHistory& run) {
  const auto smooth = smooth_loss(run);
  if (smooth.empty()) return "";
  return fmt::format("{:.4f}, smoothed {:.4f}", run.steps.back().loss, smooth.back().second);
}

std::string validation(const RunHistory& run) {
  if (run.validations.empty()) return "";
  const ValidationRow& last = run.validations.back();
  std::string text = fmt::format("{:.4f} at step {}", last.loss, last.step);
  if (last.exact_match) text += fmt::format(", exact match {:.1f} %", 100 * *last.exact_match);
  return text;
}

std::string rates(const RunHistory& run) {
  if (run.steps.empty()) return "";
  const StepRow& last = run.steps.back();
  const auto step_s = run.median_step_s();
  std::string text;
  if (step_s) text = fmt::format("{:.3g} s per step", *step_s);
  if (std::isfinite(last.tokens_per_s))
    text += fmt::format(", {} tokens/s", core::with_commas(std::llround(last.tokens_per_s)));
  if (last.mfu) text += fmt::format(", {:.1f} % MFU", 100 * *last.mfu);
  if (std::isfinite(last.lr)) text += fmt::format(", lr {:.2e}", last.lr);
  return text;
}

/// Parts of a step on the median rank, and who the others waited for last.
std::string times(const RunHistory& run) {
  if (run.times.empty()) return "";
  const TimesRow& last = run.times.back();
  double sum = 0;
  for (const auto& [name, spread] : last.parts)
    sum += spread.median;
  std::string text;
  for (const auto& [name, spread] : last.parts)
    if (sum > 0 && spread.median / sum >= 0.005)
      text += fmt::format("{}{} {:.0f} %", text.empty() ? "" : ", ", part_name(name),
                          100 * spread.median / sum);
  if (last.slowest_rank >= 0)
    text += fmt::format("; slowest: rank {} on {}", last.slowest_rank,
                        core::one_line(last.slowest_host));
  return text;
}

/// GPUs where there are any, else cores; and who is slow.
std::string devices(const RunHistory& run) {
  if (run.devices.empty()) return "";
  const DevicesRow& last = run.devices.back();
  std::vector<std::string> parts;
  const auto add = [&](const char* name, double unit, const char* words) {
    if (const auto found = last.values.find(name); found != last.values.end())
      parts.push_back(fmt::format(fmt::runtime(words), unit * found->second.median));
  };
  add("gpu_use", 100, "GPUs busy {:.0f} %");
  add("gpu_power_w", 1, "{:.0f} W");
  add("gpu_temperature_c", 1, "{:.0f} C");
  add("gpu_clock_mhz", 1, "{:.0f} MHz");
  if (parts.empty()) add("cores", 1, "{:.1f} cores busy per rank");
  for (const DevicesRow::Slow& slow : last.slow)
    parts.push_back(fmt::format("slow: rank {} on {} ({})", slow.rank, core::one_line(slow.host),
                                core::one_line(slow.why)));
  return fmt::format("{}", fmt::join(parts, ", "));
}

/// The middle group of each axis; and who is slow.
std::string links(const RunHistory& run) {
  if (run.links.empty()) return "";
  const LinksRow& last = run.links.back();
  std::vector<std::string> parts;
  for (const auto& [axis, spread] : last.bytes_per_s)
    parts.push_back(fmt::format("{} {:.3g} GB/s", core::one_line(axis), 1e-9 * spread.median));
  for (const LinksRow::Slow& slow : last.slow)
    parts.push_back(fmt::format("slow: {} on {} ({:.3g} GB/s, usual {:.3g})",
                                core::one_line(slow.axis), core::one_line(slow.nodes),
                                1e-9 * slow.bytes_per_s, 1e-9 * slow.usual_bytes_per_s));
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string memory(const RunHistory& run) {
  std::string text;
  const auto bytes = [](double number) {
    return core::human_bytes(static_cast<std::int64_t>(number));
  };
  if (!run.memory.empty())
    text =
        fmt::format("used by tensors {}, by the process {}", bytes(run.memory.back().tensor_bytes),
                    bytes(run.memory.back().process_bytes));
  if (run.starts.empty()) return text;
  const auto planned = run.starts.back().facts.find("planned_bytes");
  if (planned == run.starts.back().facts.end() || !planned->is_object()) return text;
  double sum = 0;
  for (const auto& [category, number] : planned->items())
    sum += number.is_number() ? number.get<double>() : 0;
  return text + (text.empty() ? "" : "; ") + "planned " + bytes(sum);
}

std::string checkpoint(const RunHistory& run, double now_s) {
  if (run.checkpoint_folders.empty()) return "none yet";
  std::string text = fmt::format("step {}", run.checkpoint_folders.back());
  const double age_s = now_s - run.last_checkpoint_unix_s;
  if (run.last_checkpoint_unix_s > 0 && age_s >= 0)
    text += fmt::format(", {} ago", human_seconds(age_s));
  if (!run.other_branches.empty()) text += "; other branches: " + run.other_branches;
  return text;
}

std::string starts(const RunHistory& run, const Verdict& verdict) {
  if (run.starts.empty()) return "";
  const auto count = run.starts.size();
  std::string text = fmt::format("{} start{}", count, count == 1 ? "" : "s");
  if (verdict.num_restarts > 0)
    text += fmt::format(", {} of them from a checkpoint, the last after step {}",
                        verdict.num_restarts, run.starts.back().step);
  return text;
}

}  // namespace

std::vector<std::string> screen(const RunHistory& run, const Verdict& verdict, double now_s,
                                ScreenSize size, plot::Letters letters) {
  std::vector<std::string> lines = {
      fmt::format("{}  {}: {}", to_string(verdict.state), core::one_line(run.name), verdict.why),
      progress(run, verdict, letters), "", row("loss", losses(run))};
  const std::vector<std::string> below = {row("validation", validation(run)),
                                          row("rates", rates(run)),
                                          row("time", times(run)),
                                          row("devices", devices(run)),
                                          row("links", links(run)),
                                          row("memory", memory(run)),
                                          row("checkpoint", checkpoint(run, now_s)),
                                          row("starts", starts(run, verdict))};
  const std::size_t used = lines.size() + below.size() + 3;
  if (size.rows > used + 4) {
    const std::size_t rows = std::min(most_plot_rows, size.rows - used);
    const auto plot = plot::text_plot(smooth_loss(run), size.columns, rows, letters);
    lines.insert(lines.end(), plot.begin(), plot.end());
    lines.emplace_back();
  }
  for (const std::string& line : below)
    if (!line.empty()) lines.push_back(line);
  for (std::string& line : lines)
    line = clipped(line, size.columns);
  return lines;
}

std::string status_line(const RunHistory& run, const Verdict& verdict) {
  std::string text = fmt::format("{}  {}  step {}", to_string(verdict.state),
                                 core::one_line(run.name), run.last_step());
  if (const auto steps = run.num_steps()) text += fmt::format("/{}", *steps);
  const auto smooth = smooth_loss(run);
  if (!smooth.empty()) text += fmt::format("  loss {:.4f}", smooth.back().second);
  if (!run.steps.empty() && std::isfinite(run.steps.back().tokens_per_s))
    text += fmt::format("  {:.0f} tokens/s", run.steps.back().tokens_per_s);
  const auto left = seconds_left(run);
  if (left && verdict.state == RunState::running)
    text += fmt::format("  {} left", human_seconds(*left));
  return text + "  (" + verdict.why + ")";
}

}  // namespace finetune::report
