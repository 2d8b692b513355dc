// SPDX-License-Identifier: Apache-2.0
#include "plot/line_plot.hpp"

#include <algorithm>
#include <cmath>

#include "plot/detail/frame.hpp"
#include "plot/svg.hpp"

namespace finetune::plot {
namespace {

using detail::colour_class;
using detail::Frame;

constexpr std::size_t most_points = 1200;

/// Where a curve jumps, once, the rest of it should still be seen: of many values the outermost
/// hundredths may lie outside.
void add_core_of(const Points& points, std::vector<double>& values) {
  std::vector<double> own;
  for (const auto& [x, y] : points)
    if (std::isfinite(y)) own.push_back(y);
  std::ranges::sort(own);
  const std::size_t left_out = own.size() >= 100 ? own.size() / 100 : 0;
  values.insert(values.end(), own.begin() + static_cast<std::ptrdiff_t>(left_out),
                own.end() - static_cast<std::ptrdiff_t>(left_out));
}

Scale x_scale(const LinePlot& plot) {
  std::vector<double> values;
  for (const Curve& curve : plot.curves)
    for (const auto& [x, y] : curve.points)
      values.push_back(x);
  return scale_of(values, Spacing::linear, 0);
}

Scale y_scale(const LinePlot& plot) {
  std::vector<double> values;
  for (const Curve& curve : plot.curves) {
    if (curve.style == Curve::Style::faint) {
      add_core_of(curve.points, values);
    } else {
      for (const auto& [x, y] : curve.points)
        values.push_back(y);
    }
  }
  if (plot.from_zero) values.push_back(0);
  return scale_of(values, plot.spacing, 0.05);
}

void add_curve(Svg& svg, const Frame& frame, const Curve& curve) {
  const Points points = frame.placed(thinned(curve.points, most_points));
  const std::string stroke = colour_class('s', curve.colour);
  if (curve.style == Curve::Style::faint) return svg.polyline(points, "faint " + stroke);
  if (curve.style == Curve::Style::line && points.size() > 1)
    return svg.polyline(points, "curve " + stroke);
  svg.polyline(points, "dashed " + stroke);
  for (const auto& [x, y] : points)
    svg.circle(x, y, points.size() > 60 ? 2.2 : 3.6, "dot " + colour_class('f', curve.colour));
}

Frame draw(Svg& svg, const LinePlot& plot, double top) {
  const Frame frame(x_scale(plot), y_scale(plot), top);
  frame.add_axes(svg, plot.x_label);
  svg.begin_clip(plot.id, frame.left(), frame.top() - 6, frame.right() - frame.left() + 6,
                 frame.bottom() - frame.top() + 7);
  frame.add_marks(svg, plot.marks);
  // Raw curves lie behind smoothed ones, and these behind what stands out.
  for (const auto style : {Curve::Style::faint, Curve::Style::line, Curve::Style::dots})
    for (const Curve& curve : plot.curves)
      if (curve.style == style) add_curve(svg, frame, curve);
  svg.end_clip();
  return frame;
}

Frame draw(Svg& svg, const LayerPlot& plot, double top) {
  const std::size_t count = plot.x.size();
  std::vector<double> below(count, 0), sums(count, 0);
  for (const Layer& layer : plot.layers)
    for (std::size_t i = 0; i < count; ++i)
      sums[i] += layer.values[i];
  double highest = count == 0 ? 1 : std::max(1e-12, *std::ranges::max_element(sums));
  highest = std::max(highest, plot.limit.value_or(0));
  const Frame frame(scale_of(plot.x, Spacing::linear, 0), {0, highest * 1.05, Spacing::linear},
                    top);
  frame.add_axes(svg, plot.x_label);
  for (std::size_t k = 0; k < plot.layers.size(); ++k) {
    Points upper, lower;
    for (std::size_t i = 0; i < count; ++i) {
      lower.emplace_back(plot.x[i], below[i]);
      below[i] += plot.layers[k].values[i];
      upper.emplace_back(plot.x[i], below[i]);
    }
    Points outline = frame.placed(upper);
    const Points back = frame.placed(lower);
    outline.insert(outline.end(), back.rbegin(), back.rend());
    svg.polygon(outline, "area " + colour_class('f', k));
  }
  frame.add_marks(svg, plot.marks);
  if (plot.limit) {
    svg.line(frame.left(), frame.y(*plot.limit), frame.right(), frame.y(*plot.limit), "limit");
    svg.text(frame.right(), frame.y(*plot.limit) - 5, Svg::Align::end, "", plot.limit_name);
  }
  return frame;
}

double draw(Svg& svg, const RangePlot& plot, double top) {
  constexpr double row = 30, left = 144, right = detail::picture_width - 128;
  double highest = 1e-12;
  for (const Range& range : plot.ranges)
    highest = std::max(highest, range.high);
  const auto place = [&](double value) { return left + (right - left) * value / highest; };
  for (std::size_t i = 0; i < plot.ranges.size(); ++i) {
    const Range& range = plot.ranges[i];
    const double y = top + row * (static_cast<double>(i) + 0.5);
    const std::string fill = colour_class('f', range.colour);
    svg.text(left - 10, y + 4, Svg::Align::end, "name", range.name);
    svg.line(left, y, right, y, "grid");
    if (range.low == range.high) {
      svg.rectangle(left, y - 7, place(range.high) - left, 14, "bar " + fill);
    } else {
      svg.line(place(range.low), y, place(range.high), y,
               "span " + colour_class('s', range.colour));
      svg.line(place(range.low), y - 6, place(range.low), y + 6,
               "span " + colour_class('s', range.colour));
      svg.line(place(range.high), y - 6, place(range.high), y + 6,
               "span " + colour_class('s', range.colour));
      svg.circle(place(range.middle), y, 4.5, "dot " + fill);
    }
    svg.text(right + 10, y + 4, Svg::Align::start, "", range.text);
  }
  return top + row * static_cast<double>(plot.ranges.size());
}

using Names = std::vector<std::pair<std::string, std::size_t>>;

Names names_of(const LinePlot& plot) {
  Names names;
  for (const Curve& curve : plot.curves)
    if (!curve.name.empty()) names.emplace_back(curve.name, curve.colour);
  return names;
}

Names names_of(const LayerPlot& plot) {
  Names names;
  for (std::size_t i = 0; i < plot.layers.size(); ++i)
    names.emplace_back(plot.layers[i].name, i);
  return names;
}

}  // namespace

std::string to_svg(const LinePlot& plot) {
  Svg svg;
  const double height = draw(svg, plot, 0).height();
  return svg.inline_text(detail::picture_width, height - 10, plot.title);
}

std::string to_svg(const LayerPlot& plot) {
  Svg svg;
  const double height = draw(svg, plot, 0).height();
  return svg.inline_text(detail::picture_width, height - 10, plot.title);
}

std::string to_svg(const RangePlot& plot) {
  Svg svg;
  const double height = draw(svg, plot, 0);
  return svg.inline_text(detail::picture_width, height, plot.title);
}

std::string to_svg_file(const LinePlot& plot) {
  Svg svg;
  const double top = detail::add_head(svg, plot.title, names_of(plot));
  return svg.file_text(detail::picture_width, draw(svg, plot, top).height(), plot.title);
}

std::string to_svg_file(const LayerPlot& plot) {
  Svg svg;
  const double top = detail::add_head(svg, plot.title, names_of(plot));
  return svg.file_text(detail::picture_width, draw(svg, plot, top).height(), plot.title);
}

std::string to_svg_file(const RangePlot& plot) {
  Svg svg;
  const double top = detail::add_head(svg, plot.title, {});
  return svg.file_text(detail::picture_width, draw(svg, plot, top) + 8, plot.title);
}

}  // namespace finetune::plot
