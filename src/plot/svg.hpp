#pragma once
// SPDX-License-Identifier: Apache-2.0
// SVG, element by element: everything is escaped, and colours are classes of one style sheet.

#include <cstddef>
#include <string>
#include <string_view>

#include "plot/smooth.hpp"

namespace finetune::plot {

/// `text` for XML and HTML, between tags and in attributes; control characters are left out, and
/// bytes that are not UTF-8 replaced.
std::string escaped(std::string_view text);

/// How many colours of lines there are; others begin again.
inline constexpr std::size_t num_colours = 6;

/// Colours of light, dark and printed pages as CSS variables, and what the classes of pictures
/// mean. For a <style> element of the page or the picture.
std::string_view style_sheet();

/// A picture that grows. Lengths are pixels from the upper left corner; `classes` are of the style
/// sheet.
class Svg {
 public:
  enum class Align { start, middle, end };

  void line(double x1, double y1, double x2, double y2, std::string_view classes);
  void text(double x, double y, Align align, std::string_view classes, std::string_view content);
  /// Turned by a quarter, to be read from below.
  void text_upwards(double x, double y, std::string_view classes, std::string_view content);
  void rectangle(double x, double y, double width, double height, std::string_view classes);
  void circle(double x, double y, double radius, std::string_view classes);
  void polyline(const Points& points, std::string_view classes);
  void polygon(const Points& points, std::string_view classes);
  /// What a pointer that rests on the last element shows.
  void begin_note(std::string_view note);
  void end_note() { body_ += "</g>\n"; }
  /// Until `end_clip` nothing shows outside of this. `id` is unique in the page.
  void begin_clip(std::string_view id, double x, double y, double width, double height);
  void end_clip() { body_ += "</g>\n"; }

  /// A picture within a page that has the style sheet. `label` is for who cannot see it.
  std::string inline_text(double width, double height, std::string_view label) const;
  /// A file of its own.
  std::string file_text(double width, double height, std::string_view label) const;

 private:
  std::string body_;
};

}  // namespace finetune::plot
