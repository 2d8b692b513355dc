#pragma once
// SPDX-License-Identifier: Apache-2.0
// The rectangle that a plot is drawn in, with its axes.

#include <string>
#include <utility>
#include <vector>

#include "plot/line_plot.hpp"
#include "plot/scale.hpp"
#include "plot/svg.hpp"

namespace finetune::plot::detail {

inline constexpr double picture_width = 560, picture_height = 300;

/// "s3": the class of `kind` ('s' lines, 'f' areas) in this colour.
std::string colour_class(char kind, std::size_t colour);

class Frame {
 public:
  /// `top`: where the picture begins, below a title if there is one.
  Frame(const Scale& x, const Scale& y, double top);

  double left() const { return 74; }
  double right() const { return picture_width - 12; }
  double top() const { return top_; }
  double bottom() const { return top_ + picture_height - 44; }
  double height() const { return top_ + picture_height; }
  double x(double value) const { return left() + x_.place(value) * (right() - left()); }
  double y(double value) const { return bottom() - y_.place(value) * (bottom() - top()); }

  /// Lines, ticks and the name of the x axis.
  void add_axes(Svg& svg, const std::string& x_label) const;
  void add_marks(Svg& svg, const std::vector<Mark>& marks) const;
  Points placed(const Points& points) const;

 private:
  Scale x_;
  Scale y_;
  double top_;
};

/// Title, and names in their colours beneath, wrapped. Returns where they end.
double add_head(Svg& svg, const std::string& title,
                const std::vector<std::pair<std::string, std::size_t>>& names);

}  // namespace finetune::plot::detail
