// SPDX-License-Identifier: Apache-2.0
#include "plan/time/scaling_plot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.hpp"

namespace finetune::plan {
namespace {

constexpr double width = 760, height = 460;
constexpr double left = 86, right = 24, top = 62, bottom = 64;
/// Colours that differ in print and for most eyes (Okabe and Ito 2008).
constexpr const char *weak_colour = "#0072b2", *strong_colour = "#d55e00", *grey = "#767676";

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else if (static_cast<unsigned char>(c) >= 0x20)
      out += c;
  }
  return out;
}

/// "850", "12k", "3.4M".
std::string short_number(double value) {
  if (value >= 1e9) return fmt::format("{:.3g}G", value / 1e9);
  if (value >= 1e6) return fmt::format("{:.3g}M", value / 1e6);
  if (value >= 1e3) return fmt::format("{:.3g}k", value / 1e3);
  return fmt::format("{:.3g}", value);
}

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
    svg_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
        "width=\"{0:.0f}\" "
        "height=\"{1:.0f}\" font-family=\"sans-serif\" font-size=\"12\">\n"
        "<rect width=\"{0:.0f}\" height=\"{1:.0f}\" fill=\"white\"/>\n",
        width, height);
    write(left, 22, "start", "#202020", escaped(title), 15);
    write((left + width - right) / 2, height - 18, "middle", "#202020", "nodes");
    svg_ += fmt::format(
        "<text transform=\"translate(20 {:.1f}) rotate(-90)\" text-anchor=\"middle\" "
        "fill=\"#202020\">tokens/s</text>\n",
        (top + height - bottom) / 2);
    add_axes();
    add_ideal();
    add_rows(strong_, strong_colour, 20);
    add_rows(weak_, weak_colour, -10);
    add_legend();
    return svg_ + "</svg>\n";
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

  void write(double at_x, double at_y, const char* anchor, const char* colour,
             const std::string& text, int size = 12) {
    svg_ += fmt::format(
        "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" fill=\"{}\" "
        "font-size=\"{}\">{}</text>\n",
        at_x, at_y, anchor, colour, size, text);
  }
  void line(double x1, double y1, double x2, double y2, const char* style) {
    svg_ += fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n", x1,
                        y1, x2, y2, style);
  }

  void add_axes() {
    constexpr const char* thin = "stroke=\"#dddddd\"";
    for (const ScalingRow& row : strong_.size() > weak_.size() ? strong_ : weak_) {
      const double at = x(static_cast<double>(row.num_nodes));
      line(at, top, at, height - bottom, thin);
      write(at, height - bottom + 18, "middle", "#202020", fmt::format("{}", row.num_nodes));
    }
    for (double decade = std::pow(10, std::floor(std::log10(least_))); decade < most_;
         decade *= 10) {
      for (const double factor : {1.0, 2.0, 5.0}) {
        const double value = factor * decade;
        if (value < least_ || value > most_) continue;
        line(left, y(value), width - right, y(value), thin);
        write(left - 8, y(value) + 4, "end", "#202020", short_number(value));
      }
    }
    svg_ += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"none\" "
        "stroke=\"#404040\"/>\n",
        left, top, width - left - right, height - top - bottom);
  }

  void add_ideal() {
    const double a_node = rate(weak_.front()) / static_cast<double>(weak_.front().num_nodes);
    line(x(least_nodes_), y(a_node * least_nodes_), x(most_nodes_), y(a_node * most_nodes_),
         "stroke=\"#767676\" stroke-dasharray=\"5 4\"");
  }

  void add_rows(const std::vector<ScalingRow>& rows, const char* colour, double label_offset) {
    std::string points;
    for (const ScalingRow& row : rows) {
      const double at_x = x(static_cast<double>(row.num_nodes)), at_y = y(rate(row));
      points += fmt::format("{:.1f},{:.1f} ", at_x, at_y);
      svg_ += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"{}\"/>\n", at_x, at_y,
                          colour);
      const bool is_last = at_x > width - right - 20;
      write(is_last ? at_x - 6 : at_x, at_y + label_offset, is_last ? "end" : "middle", colour,
            fmt::format("{:.0f} %", 100 * row.efficiency), 11);
    }
    points.pop_back();
    svg_ +=
        fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n",
                    points, colour);
  }

  void add_legend() {
    write(left, 44, "start", weak_colour, "weak: the global batch grows with the nodes");
    write(left + 300, 44, "start", strong_colour, "strong: it stays");
    write(left + 430, 44, "start", grey, "dashed: ideal; %: tokens/s per rank");
  }

  const std::vector<ScalingRow>& weak_;
  const std::vector<ScalingRow>& strong_;
  double least_nodes_ = 1e18, most_nodes_ = 0;
  double least_ = 1e300, most_ = 0;  ///< tokens/s
  std::string svg_;
};

}  // namespace

std::string plot_scaling(const std::string& title, const std::vector<ScalingRow>& weak,
                         const std::vector<ScalingRow>& strong) {
  core::check(!weak.empty() && !strong.empty(), "a plot has points");
  return Plot(weak, strong).text(title);
}

}  // namespace finetune::plan
