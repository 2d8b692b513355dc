// SPDX-License-Identifier: Apache-2.0
#include "plot/text_plot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "plot/scale.hpp"

namespace finetune::plot {
namespace {

constexpr std::size_t axis_columns = 9;  // "  0.0025 |"

/// U+2800 and the dots of `bits`, as UTF-8.
std::string braille(unsigned bits) {
  const unsigned code = 0x2800 + bits;
  return {static_cast<char>(0xe0 | (code >> 12)), static_cast<char>(0x80 | ((code >> 6) & 0x3f)),
          static_cast<char>(0x80 | (code & 0x3f))};
}

/// Dots in a grid; letters have 2 x 4 of them, or 1 x 1.
class Grid {
 public:
  Grid(std::size_t columns, std::size_t rows, Letters letters)
      : wide_(letters == Letters::braille ? 2 : 1),
        high_(letters == Letters::braille ? 4 : 1),
        columns_(columns),
        rows_(rows),
        letters_(columns * rows, 0) {}

  std::size_t width() const { return columns_ * wide_; }
  std::size_t height() const { return rows_ * high_; }

  void set(std::size_t x, std::size_t y) {
    // The order of braille's dots: 1 2 3 7 down on the left, 4 5 6 8 on the right.
    constexpr std::array<std::array<unsigned, 4>, 2> bits = {
        {{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}}};
    letters_[(y / high_) * columns_ + x / wide_] |= wide_ == 1 ? 1u : bits[x % 2][y % 4];
  }

  std::string row(std::size_t i) const {
    std::string text;
    for (std::size_t x = 0; x < columns_; ++x) {
      const unsigned bits = letters_[i * columns_ + x];
      text += bits == 0 ? " " : wide_ == 1 ? "*" : braille(bits);
    }
    return text.substr(0, text.find_last_not_of(' ') + 1);
  }

 private:
  std::size_t wide_, high_, columns_, rows_;
  std::vector<unsigned> letters_;
};

std::size_t cell(double place, std::size_t count) {
  const double at = std::clamp(place, 0.0, 1.0) * static_cast<double>(count - 1);
  return static_cast<std::size_t>(std::lround(at));
}

/// Each column of dots from where the curve comes to where it goes.
void draw(Grid& grid, const Points& points, const Scale& x, const Scale& y) {
  std::size_t last_x = 0, last_y = 0;
  bool is_first = true;
  for (const auto& [at_x, at_y] : points) {
    const std::size_t column = cell(x.place(at_x), grid.width());
    const std::size_t row = grid.height() - 1 - cell(y.place(at_y), grid.height());
    if (is_first) last_x = column, last_y = row;
    const std::size_t steps =
        std::max({column - last_x, row > last_y ? row - last_y : last_y - row, std::size_t{1}});
    for (std::size_t i = 0; i <= steps; ++i) {
      const double part = static_cast<double>(i) / static_cast<double>(steps);
      const auto between = [&](std::size_t from, std::size_t to) {
        return static_cast<std::size_t>(
            std::lround(static_cast<double>(from) +
                        part * (static_cast<double>(to) - static_cast<double>(from))));
      };
      grid.set(between(last_x, column), between(last_y, row));
    }
    last_x = column, last_y = row;
    is_first = false;
  }
}

/// The row of letters that each tick stands at.
std::vector<std::string> axis_of(const Scale& y, std::size_t rows) {
  std::vector<std::string> labels(rows);
  for (const Tick& tick : ticks(y, static_cast<int>(rows / 2)))
    labels[rows - 1 - cell(y.place(tick.value), rows)] = tick.label;
  return labels;
}

}  // namespace

std::vector<std::string> text_plot(const Points& all, std::size_t columns, std::size_t rows,
                                   Letters letters, std::string_view x_name) {
  if (columns < axis_columns + 12 || rows < 2) return {};
  const std::size_t width = columns - axis_columns - 2;
  const Points points = thinned(all, 8 * width);
  if (points.empty()) return {};
  std::vector<double> xs, ys;
  for (const auto& [x, y] : points) {
    xs.push_back(x);
    ys.push_back(y);
  }
  const Scale x = scale_of(xs, Spacing::linear, 0), y = scale_of(ys, Spacing::linear, 0.02);
  Grid grid(width, rows, letters);
  draw(grid, points, x, y);

  const char* bar = letters == Letters::braille ? "│" : "|";
  const auto labels = axis_of(y, rows);
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < rows; ++i)
    lines.push_back(fmt::format("{:>{}} {}{}", labels[i], axis_columns - 1, bar, grid.row(i)));
  const std::string first = short_number(xs.front()),
                    last = std::string(x_name) + short_number(xs.back());
  const std::size_t gap =
      width > first.size() + last.size() ? width - first.size() - last.size() : 1;
  lines.push_back(std::string(axis_columns + 1, ' ') + first + std::string(gap, ' ') + last);
  return lines;
}

std::string text_bar(double part, std::size_t columns, Letters letters) {
  const std::size_t full = cell(part, columns + 1);
  std::string text;
  for (std::size_t i = 0; i < columns; ++i)
    text += letters == Letters::braille ? (i < full ? "█" : "░") : (i < full ? "#" : ".");
  return text;
}

}  // namespace finetune::plot
