#pragma once
// SPDX-License-Identifier: Apache-2.0
// Pictures of a run: curves over steps, layers that add up, and ranges side by side.

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plot/scale.hpp"
#include "plot/smooth.hpp"

namespace finetune::plot {

/// Colours count from 0; those beyond `num_colours` begin again.
struct Curve {
  enum class Style { line, faint, dots };
  std::string name;  ///< for the legend; faint ones need none
  Points points;     ///< ordered by x
  std::size_t colour = 0;
  Style style = Style::line;
};

/// An event at `x`: a start that went on there is a line through the plot, a checkpoint a notch at
/// its foot.
struct Mark {
  enum class Kind { restart, checkpoint };
  double x = 0;
  std::size_t colour = 0;
  Kind kind = Kind::restart;
  std::string note;
};

struct LinePlot {
  std::string id;     ///< unique in the page: letters and digits
  std::string title;  ///< with the unit
  std::string x_label = "step";
  std::vector<Curve> curves = {};
  std::vector<Mark> marks = {};
  Spacing spacing = Spacing::linear;
  bool from_zero = false;
};

/// Values of one layer at the x of all of them.
struct Layer {
  std::string name;
  std::vector<double> values;
};

struct LayerPlot {
  std::string id;
  std::string title;
  std::string x_label = "step";
  std::vector<double> x = {};  ///< ordered
  std::vector<Layer> layers = {};
  std::vector<Mark> marks = {};
  std::optional<double> limit = {};  ///< a line across; what all layers together were to stay below
  std::string limit_name = {};
};

/// A line from `low` to `high` with a dot at `middle`; a bar from 0 where all three are the same.
struct Range {
  std::string name;
  double low = 0, middle = 0, high = 0;
  std::string text;  ///< behind it
  std::size_t colour = 0;
};

struct RangePlot {
  std::string title;
  std::vector<Range> ranges = {};
};

/// SVG for a page that has plot::style_sheet() and says title and legend itself.
std::string to_svg(const LinePlot& plot);
std::string to_svg(const LayerPlot& plot);
std::string to_svg(const RangePlot& plot);

/// A file of its own, light, with title and legend.
std::string to_svg_file(const LinePlot& plot);
std::string to_svg_file(const LayerPlot& plot);
std::string to_svg_file(const RangePlot& plot);

}  // namespace finetune::plot
