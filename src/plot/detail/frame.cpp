// SPDX-License-Identifier: Apache-2.0
#include "plot/detail/frame.hpp"

#include <algorithm>
#include <cmath>

namespace finetune::plot::detail {

using Align = Svg::Align;

std::string colour_class(char kind, std::size_t colour) {
  return std::string(1, kind) + std::to_string(colour % num_colours);
}

Frame::Frame(const Scale& x, const Scale& y, double top) : x_(x), y_(y), top_(top + 10) {}

void Frame::add_axes(Svg& svg, const std::string& x_label) const {
  for (const Tick& tick : ticks(y_, 5)) {
    svg.line(left(), y(tick.value), right(), y(tick.value), "grid");
    svg.text(left() - 8, y(tick.value) + 4, Align::end, "", tick.label);
  }
  // The last number says of what they are: a name of its own would be in its way.
  const auto numbers = ticks(x_, 5);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const double at = x(numbers[i].value);
    const bool is_last = i + 1 == numbers.size();
    svg.line(at, bottom(), at, bottom() + 4, "axis");
    svg.text(is_last ? std::min(at + 8, right()) : at, bottom() + 26,
             is_last ? Align::end : Align::middle, "",
             is_last ? x_label + " " + numbers[i].label : numbers[i].label);
  }
  svg.line(left(), bottom(), right(), bottom(), "axis");
}

void Frame::add_marks(Svg& svg, const std::vector<Mark>& marks) const {
  constexpr double nearest = 2;  // pixels: closer ones cannot be told apart
  double last_notch = -HUGE_VAL;
  for (const Mark& mark : marks) {
    const double at = x(mark.x);
    if (at < left() - 1 || at > right() + 1) continue;
    const std::string colour = colour_class('s', mark.colour);
    if (mark.kind == Mark::Kind::checkpoint) {
      if (at - last_notch < nearest) continue;
      last_notch = at;
    }
    svg.begin_note(mark.note);
    if (mark.kind == Mark::Kind::checkpoint)
      svg.line(at, bottom() - 7, at, bottom(), "saved " + colour);
    else
      svg.line(at, top(), at, bottom(), "restart " + colour);
    svg.end_note();
  }
}

Points Frame::placed(const Points& points) const {
  Points out;
  for (const auto& [at_x, at_y] : points) {
    const double px = x(at_x), py = y(at_y);
    // The logarithm of what is not positive: below the picture.
    if (std::isfinite(px))
      out.emplace_back(
          px, std::isnan(py) ? bottom() + 50 : std::clamp(py, top() - 200, bottom() + 200));
  }
  return out;
}

double add_head(Svg& svg, const std::string& title,
                const std::vector<std::pair<std::string, std::size_t>>& names) {
  constexpr double letter = 6.6;  // of 12 pixels, about
  svg.text(16, 24, Align::start, "title", title);
  double x = 16, y = 44;
  for (const auto& [name, colour] : names) {
    const double width = 22 + letter * static_cast<double>(name.size());
    if (x > 16 && x + width > picture_width - 12) {
      x = 16;
      y += 18;
    }
    svg.rectangle(x, y - 8, 10, 8, colour_class('f', colour));
    svg.text(x + 15, y, Align::start, "name", name);
    x += width + 10;
  }
  return names.empty() ? 32 : y + 6;
}

}  // namespace finetune::plot::detail
