// SPDX-License-Identifier: Apache-2.0
#include "plan/time/scaling_plot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.hpp"
#include "plot/scale.hpp"
#include "plot/svg.hpp"

namespace finetune::plan {
namespace {

constexpr double width = 760, height = 460;
constexpr double left = 86, right = 24, top = 62, bottom = 64;
/// Classes of plot::style_sheet().
constexpr const char *weak_text = "f0", *strong_text = "f1";

using Align = plot::Svg::Align;

class Plot {
 public:
  Plot(const std::vector<ScalingRow>& weak, const std::vector<ScalingRow>& strong)
      : weak_(weak), strong_(strong) {
    for (const auto* rows : {&weak, &strong}) {
      for (const ScalingRow& row : *rows) {
        least_nodes_ = std::min(least_nodes_, static_cast<double>(row.num_nodes));
        most_nodes_ = std::max(most_nodes_, static_cast<double>(row.num_nodes));
        least_ = std::min(least_, rate(row));
        most_ = std::max(most_, rate(row));
      }
    }
    if (most_nodes_ == least_nodes_) most_nodes_ *= 2;
    const double a_node = rate(weak.front()) / static_cast<double>(weak.front().num_nodes);
    most_ = 1.3 * std::max(most_, a_node * most_nodes_);
    least_ = 0.7 * std::min(least_, a_node * least_nodes_);
  }

  std::string text(const std::string& title) {
    svg_.text(left, 22, Align::start, "title", title);
    svg_.text((left + width - right) / 2, height - 18, Align::middle, "name", "nodes");
    svg_.text_upwards(20, (top + height - bottom) / 2, "name", "tokens/s");
    add_axes();
    add_ideal();
    add_rows(strong_, 1, 20);
    add_rows(weak_, 0, -10);
    add_legend();
    return svg_.file_text(width, height, title);
  }

 private:
  static double rate(const ScalingRow& row) { return row.strategy.time.tokens_per_s; }
  double x(double nodes) const {
    return left + (width - left - right) * std::log(nodes / least_nodes_) /
                      std::log(most_nodes_ / least_nodes_);
  }
  double y(double tokens_per_s) const {
    return height - bottom -
           (height - top - bottom) * std::log(tokens_per_s / least_) / std::log(most_ / least_);
  }

  void add_axes() {
    for (const ScalingRow& row : strong_.size() > weak_.size() ? strong_ : weak_) {
      const double at = x(static_cast<double>(row.num_nodes));
      svg_.line(at, top, at, height - bottom, "grid");
      svg_.text(at, height - bottom + 18, Align::middle, "", fmt::format("{}", row.num_nodes));
    }
    const plot::Scale rates{least_, most_, plot::Spacing::logarithmic};
    for (const plot::Tick& tick : plot::ticks(rates, 8)) {
      svg_.line(left, y(tick.value), width - right, y(tick.value), "grid");
      svg_.text(left - 8, y(tick.value) + 4, Align::end, "", tick.label);
    }
    svg_.line(left, height - bottom, width - right, height - bottom, "axis");
  }

  void add_ideal() {
    const double a_node = rate(weak_.front()) / static_cast<double>(weak_.front().num_nodes);
    svg_.polyline(
        {{x(least_nodes_), y(a_node * least_nodes_)}, {x(most_nodes_), y(a_node * most_nodes_)}},
        "dashed s5");
  }

  void add_rows(const std::vector<ScalingRow>& rows, std::size_t colour, double label_offset) {
    plot::Points points;
    for (const ScalingRow& row : rows)
      points.emplace_back(x(static_cast<double>(row.num_nodes)), y(rate(row)));
    svg_.polyline(points, fmt::format("curve s{}", colour));
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const auto [at_x, at_y] = points[i];
      svg_.circle(at_x, at_y, 4, fmt::format("dot f{}", colour));
      const bool is_last = at_x > width - right - 20;
      svg_.text(is_last ? at_x - 6 : at_x, at_y + label_offset,
                is_last ? Align::end : Align::middle, fmt::format("f{}", colour),
                fmt::format("{:.0f} %", 100 * rows[i].efficiency));
    }
  }

  void add_legend() {
    svg_.text(left, 44, Align::start, weak_text, "weak: the global batch grows with the nodes");
    svg_.text(left + 326, 44, Align::start, strong_text, "strong: it stays");
    svg_.text(width - right, 44, Align::end, "", "dashed: ideal; %: tokens/s per rank");
  }

  const std::vector<ScalingRow>& weak_;
  const std::vector<ScalingRow>& strong_;
  double least_nodes_ = 1e18, most_nodes_ = 0;
  double least_ = 1e300, most_ = 0;  ///< tokens/s
  plot::Svg svg_;
};

}  // namespace

std::string plot_scaling(const std::string& title, const std::vector<ScalingRow>& weak,
                         const std::vector<ScalingRow>& strong) {
  core::check(!weak.empty() && !strong.empty(), "a plot has points");
  return Plot(weak, strong).text(title);
}

}  // namespace finetune::plan
