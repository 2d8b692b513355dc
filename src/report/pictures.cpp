// SPDX-License-Identifier: Apache-2.0
#include "report/pictures.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <set>

#include "core/text.hpp"
#include "plot/smooth.hpp"
#include "report/detail/marks.hpp"
#include "report/detail/rows.hpp"

namespace finetune::report {
namespace {

using detail::marks_of;
using detail::points_of;

using plot::Curve;
using plot::LinePlot;
using Runs = std::span<const RunHistory>;

/// Each run's raw curve, pale, and its smoothed one. `name` is what one run's is called.
template <typename Value>
void add_smoothed(LinePlot& plot, Runs runs, const std::string& name, const Value& value) {
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const plot::Points raw = points_of(runs[i].steps, value);
    if (raw.empty()) continue;
    plot.curves.push_back({runs.size() > 1 ? runs[i].name : name,
                           plot::smoothed(raw, plot::usual_weight(raw.size())), i,
                           Curve::Style::line});
    plot.curves.push_back({"", raw, i, Curve::Style::faint});
  }
}

std::vector<Picture> of_plot(LinePlot plot, Runs runs) {
  if (plot.curves.empty()) return {};
  plot.marks = marks_of(runs);
  return {std::move(plot)};
}

std::vector<Picture> loss(Runs runs, plot::Spacing spacing) {
  LinePlot plot{.id = "loss", .title = "Loss", .spacing = spacing};
  add_smoothed(plot, runs, "training", [](const StepRow& row) { return row.loss; });
  for (std::size_t i = 0; i < runs.size(); ++i) {
    auto points = points_of(runs[i].validations, [](const ValidationRow& row) { return row.loss; });
    if (points.empty()) continue;
    const bool is_alone = runs.size() == 1;
    plot.curves.push_back(
        {is_alone ? "validation" : "", std::move(points), is_alone ? 1 : i, Curve::Style::dots});
  }
  return of_plot(std::move(plot), runs);
}

std::vector<Picture> exact_match(Runs runs) {
  LinePlot plot{.id = "match", .title = "Exact match of validation answers, %", .from_zero = true};
  for (std::size_t i = 0; i < runs.size(); ++i) {
    auto points = points_of(runs[i].validations, [](const ValidationRow& row) {
      return row.exact_match ? 100 * *row.exact_match : NAN;
    });
    if (!points.empty())
      plot.curves.push_back({runs[i].name, std::move(points), i, Curve::Style::dots});
  }
  return of_plot(std::move(plot), runs);
}

/// One for each measure, the first ones of those that there are.
std::vector<Picture> tasks(Runs runs) {
  constexpr std::size_t most = 24;
  std::vector<std::string> names;
  for (const RunHistory& run : runs)
    for (const EvaluationRow& row : run.evaluations)
      for (const EvaluationRow::Measured& one : row.measured)
        if (std::ranges::find(names, one.name) == names.end() && names.size() < most)
          names.push_back(one.name);
  std::vector<Picture> out;
  for (const std::string& name : names) {
    LinePlot plot{.id = fmt::format("task{}", out.size()), .title = name};
    for (std::size_t i = 0; i < runs.size(); ++i) {
      auto points = points_of(runs[i].evaluations, [&](const EvaluationRow& row) {
        const EvaluationRow::Measured* one = row.find(name);
        return one != nullptr ? one->value : NAN;
      });
      if (points.empty()) continue;
      plot.curves.push_back({"", points, i, Curve::Style::line});
      plot.curves.push_back(
          {runs.size() > 1 ? runs[i].name : "", std::move(points), i, Curve::Style::dots});
    }
    std::ranges::move(of_plot(std::move(plot), runs), std::back_inserter(out));
  }
  return out;
}

std::vector<Picture> rate(Runs runs) {
  LinePlot plot{.id = "lr", .title = "Learning rate", .from_zero = true};
  for (std::size_t i = 0; i < runs.size(); ++i) {
    auto points = points_of(runs[i].steps, [](const StepRow& row) { return row.lr; });
    if (!points.empty())
      plot.curves.push_back({runs[i].name, std::move(points), i, Curve::Style::line});
  }
  return of_plot(std::move(plot), runs);
}

std::vector<Picture> grad_norm(Runs runs) {
  LinePlot plot{.id = "norm",
                .title = "Gradient norm before clipping",
                .spacing = plot::Spacing::logarithmic};
  add_smoothed(plot, runs, "gradient norm",
               [](const StepRow& row) { return row.grad_norm > 0 ? row.grad_norm : NAN; });
  return of_plot(std::move(plot), runs);
}

std::vector<Picture> throughput(Runs runs) {
  LinePlot plot{.id = "tokens", .title = "Tokens per second", .from_zero = true};
  add_smoothed(plot, runs, "tokens per second",
               [](const StepRow& row) { return row.tokens_per_s; });
  return of_plot(std::move(plot), runs);
}

std::vector<Picture> mfu(Runs runs) {
  LinePlot plot{.id = "mfu", .title = "Model FLOPs utilisation, %", .from_zero = true};
  add_smoothed(plot, runs, "MFU",
               [](const StepRow& row) { return row.mfu ? 100 * *row.mfu : NAN; });
  return of_plot(std::move(plot), runs);
}

/// The middle one of the ranks' devices, and pale the one that has least.
std::vector<Picture> device(Runs runs, LinePlot plot, const char* name, double unit) {
  plot.from_zero = true;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const auto points = [&](double Spread::*of) {
      return points_of(runs[i].devices, [&](const DevicesRow& row) {
        const auto found = row.values.find(name);
        return found == row.values.end() ? NAN : unit * found->second.*of;
      });
    };
    plot::Points middle = points(&Spread::median);
    if (middle.empty()) continue;
    plot.curves.push_back(
        {runs.size() > 1 ? runs[i].name : "median", std::move(middle), i, Curve::Style::line});
    plot.curves.push_back(
        {runs.size() > 1 ? "" : "least", points(&Spread::min), i, Curve::Style::faint});
  }
  return of_plot(std::move(plot), runs);
}

/// Of each axis the middle one of its groups, and pale the slowest.
std::vector<Picture> links(Runs runs) {
  LinePlot plot{.id = "links",
                .title = "Links by axis, GB/s per rank (pale: the slowest group)",
                .from_zero = true};
  std::size_t colour = 0;
  for (const RunHistory& run : runs) {
    std::set<std::string> axes;
    for (const LinksRow& row : run.links)
      for (const auto& rate : row.bytes_per_s)
        axes.insert(rate.first);
    for (const std::string& axis : axes) {
      const auto points = [&](double Spread::*of) {
        return points_of(run.links, [&](const LinksRow& row) {
          const auto found = row.bytes_per_s.find(axis);
          return found == row.bytes_per_s.end() ? NAN : 1e-9 * found->second.*of;
        });
      };
      plot.curves.push_back({runs.size() > 1 ? run.name + ", " + axis : axis,
                             points(&Spread::median), colour, Curve::Style::line});
      plot.curves.push_back({"", points(&Spread::min), colour++, Curve::Style::faint});
    }
  }
  return of_plot(std::move(plot), runs);
}

std::string title_of(const std::string& title, const RunHistory& run, Runs runs) {
  return runs.size() > 1 ? title + ": " + run.name : title;
}

/// Each stretch of the rows, where there are more than a picture can show, is one point.
void add_layers(plot::LayerPlot& plot, std::span<const TimesRow> rows) {
  constexpr std::size_t most = 300;
  const std::size_t count = std::min(most, rows.size());
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t begin = i * rows.size() / count, end = (i + 1) * rows.size() / count;
    plot.x.push_back(static_cast<double>(rows[end - 1].step));
    for (const auto& [name, spread] : mean_times(rows.subspan(begin, end - begin))) {
      auto layer = std::ranges::find(plot.layers, name, &plot::Layer::name);
      if (layer == plot.layers.end())
        layer = plot.layers.insert(layer, plot::Layer{name, std::vector<double>(i, 0)});
      layer->values.push_back(spread.median);
    }
    for (plot::Layer& layer : plot.layers)
      layer.values.resize(i + 1, 0);
  }
}

std::vector<Picture> step_time(Runs runs) {
  std::vector<Picture> out;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].times.size() < 2) continue;
    plot::LayerPlot plot{
        .id = fmt::format("time{}", i),
        .title = title_of("Where the time of a step goes, s (median rank)", runs[i], runs)};
    add_layers(plot, runs[i].times);
    plot.marks = marks_of(runs[i], 5, false);
    out.emplace_back(std::move(plot));
  }
  return out;
}

/// "0.18–0.20 s", "2.4–2.7 ms", "40.1–41.0 µs".
std::string span_text(const Spread& spread) {
  if (spread.max >= 0.1) return fmt::format("{:.2f}–{:.2f} s", spread.min, spread.max);
  if (spread.max >= 1e-4)
    return fmt::format("{:.1f}–{:.1f} ms", 1e3 * spread.min, 1e3 * spread.max);
  return fmt::format("{:.0f}–{:.0f} µs", 1e6 * spread.min, 1e6 * spread.max);
}

std::vector<Picture> ranks(Runs runs) {
  std::vector<Picture> out;
  for (const RunHistory& run : runs) {
    plot::RangePlot plot{
        title_of("Seconds per step over ranks: fastest, median, slowest", run, runs), {}};
    std::size_t colour = 0;
    for (const auto& [name, spread] : mean_times(run.times)) {
      plot.ranges.push_back(
          {name, spread.min, spread.median, spread.max, span_text(spread), colour++});
    }
    if (!plot.ranges.empty()) out.emplace_back(std::move(plot));
  }
  return out;
}

std::vector<Picture> memory(Runs runs) {
  std::vector<Picture> out;
  for (const RunHistory& run : runs) {
    plot::RangePlot plot{title_of("Memory of the rank that needs most", run, runs), {}};
    const auto add = [&](const char* name, double bytes, std::size_t colour) {
      if (bytes > 0)
        plot.ranges.push_back({name, bytes, bytes, bytes,
                               core::human_bytes(static_cast<std::int64_t>(bytes)), colour});
    };
    if (!run.starts.empty()) {
      const core::Json& facts = run.starts.back().facts;
      double planned = 0;
      if (const auto found = facts.find("planned_bytes");
          found != facts.end() && found->is_object())
        for (const auto& [category, bytes] : found->items())
          planned += bytes.is_number() ? bytes.get<double>() : 0;
      add("planned", planned, 5);
      add("of it tensors", detail::number_of(facts, "planned_tensor_bytes").value_or(0), 5);
    }
    double tensors = 0, process = 0;
    for (const MemoryRow& row : run.memory) {
      tensors = std::max(tensors, row.tensor_bytes);
      process = std::max(process, row.process_bytes);
    }
    add("used, tensors", tensors, 0);
    add("used, process", process, 0);
    if (!plot.ranges.empty()) out.emplace_back(std::move(plot));
  }
  return out;
}

std::vector<Picture> memory_timeline(Runs runs) {
  std::vector<Picture> out;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (!runs[i].timeline) continue;
    const MemoryTimeline& timeline = *runs[i].timeline;
    plot::LayerPlot plot{
        .id = fmt::format("held{}", i),
        .title = title_of(fmt::format("Memory of tensors in steps {} to {}, MiB (rank {})",
                                      timeline.first_step, timeline.last_step, timeline.rank),
                          runs[i], runs),
        .x_label = "seconds",
        .x = timeline.at_s};
    for (const auto& [use, mib] : timeline.mib)
      if (std::ranges::any_of(mib, [](double value) { return value > 0; }))
        plot.layers.push_back({use, mib});
    // What stays as it is lies at the bottom, where what changes does not move it.
    std::ranges::stable_sort(plot.layers, {}, [](const plot::Layer& layer) {
      const auto [least, most] = std::ranges::minmax(layer.values);
      return most - least;
    });
    if (!runs[i].starts.empty()) {
      const auto planned = detail::number_of(runs[i].starts.back().facts, "planned_tensor_bytes");
      if (planned) plot.limit = *planned / (1 << 20);
      plot.limit_name = "planned";
    }
    out.emplace_back(std::move(plot));
  }
  return out;
}

}  // namespace

std::vector<std::string> picture_names() {
  return {"loss",      "exact-match", "tasks", "lr",     "grad-norm",       "tokens-per-s",
          "mfu",       "times",       "ranks", "memory", "memory-timeline", "gpu-use",
          "gpu-power", "gpu-clock",   "cores", "links"};
}

std::vector<Picture> pictures(const std::string& name, Runs runs, plot::Spacing spacing) {
  if (name == "loss") return loss(runs, spacing);
  if (name == "exact-match") return exact_match(runs);
  if (name == "tasks") return tasks(runs);
  if (name == "lr") return rate(runs);
  if (name == "grad-norm") return grad_norm(runs);
  if (name == "tokens-per-s") return throughput(runs);
  if (name == "mfu") return mfu(runs);
  if (name == "times") return step_time(runs);
  if (name == "ranks") return ranks(runs);
  if (name == "memory-timeline") return memory_timeline(runs);
  if (name == "gpu-use")
    return device(runs, {.id = "gpu", .title = "GPUs busy, %"}, "gpu_use", 100);
  if (name == "gpu-power")
    return device(runs, {.id = "power", .title = "Power of a GPU, W"}, "gpu_power_w", 1);
  if (name == "gpu-clock")
    return device(runs, {.id = "clock", .title = "Clock of a GPU, MHz"}, "gpu_clock_mhz", 1);
  if (name == "cores")
    return device(runs, {.id = "cores", .title = "Busy cores of a rank"}, "cores", 1);
  if (name == "links") return links(runs);
  return name == "memory" ? memory(runs) : std::vector<Picture>();
}

std::string to_svg(const Picture& picture) {
  return std::visit([](const auto& plot) { return plot::to_svg(plot); }, picture);
}

std::string to_svg_file(const Picture& picture) {
  return std::visit([](const auto& plot) { return plot::to_svg_file(plot); }, picture);
}

std::string part_name(const std::string& field) {
  constexpr std::array<std::pair<const char*, const char*>, 5> names = {
      {{"compute_s", "compute"},
       {"exposed_s", "waiting"},
       {"data_s", "data"},
       {"optimizer_s", "optimizer"},
       {"checkpoint_s", "checkpoint"}}};
  for (const auto& [known, name] : names)
    if (field == known) return name;
  return field;
}

std::vector<std::pair<std::string, Spread>> mean_times(std::span<const TimesRow> times) {
  std::vector<std::pair<std::string, Spread>> sums;
  double steps = 0;
  for (const TimesRow& row : times) {
    const auto weight = static_cast<double>(std::max<std::int64_t>(1, row.num_steps));
    steps += weight;
    for (const auto& [field, spread] : row.parts) {
      const std::string name = part_name(field);
      auto found = std::ranges::find_if(sums, [&](const auto& s) { return s.first == name; });
      if (found == sums.end()) found = sums.insert(found, std::pair(name, Spread()));
      found->second.min += weight * spread.min;
      found->second.median += weight * spread.median;
      found->second.max += weight * spread.max;
    }
  }
  for (auto& [name, spread] : sums)
    spread = {spread.min / steps, spread.median / steps, spread.max / steps};
  return sums;
}

}  // namespace finetune::report
