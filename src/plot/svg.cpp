// SPDX-License-Identifier: Apache-2.0
#include "plot/svg.hpp"

#include <fmt/format.h>

#include <map>

#include "core/text.hpp"

namespace finetune::plot {
namespace {

/// Pixels with one digit, and no "-0".
std::string px(double value) {
  std::string text = fmt::format("{:.1f}", value);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text == "-0" ? "0" : text;
}

/// The style sheet for programs that know neither variables nor media: the first value of each
/// variable, that of light pages.
std::string plain_style() {
  std::string text(style_sheet());
  std::map<std::string, std::string> values;
  const std::size_t end = text.find('}');
  for (std::size_t at = text.find("--"); at < end; at = text.find("--", at + 1)) {
    const std::size_t colon = text.find(':', at);
    values[text.substr(at, colon - at)] =
        text.substr(colon + 1, text.find_first_of(";}", colon) - colon - 1);
  }
  text.erase(0, text.find(".plot{"));
  for (const auto& [name, value] : values) {
    const std::string use = "var(" + name + ")";
    for (std::size_t at = text.find(use); at != text.npos; at = text.find(use, at))
      text.replace(at, use.size(), value);
  }
  return text;
}

std::string points_text(const Points& points) {
  std::string text;
  for (const auto& [x, y] : points) {
    if (!text.empty()) text += ' ';
    text += px(x) + "," + px(y);
  }
  return text;
}

}  // namespace

std::string escaped(std::string_view text) {
  const std::string valid = core::invalid_utf8(text) ? core::printable(text) : std::string(text);
  std::string out;
  for (const char c : valid) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else if (c == '"')
      out += "&quot;";
    else if (c == '\'')
      out += "&#39;";
    else if ((byte >= 0x20 && byte != 0x7f) || c == '\n' || c == '\t')
      out += c;
  }
  return out;
}

// Colours that differ for most eyes and in print, darker on light pages and lighter on dark ones.
std::string_view style_sheet() {
  return R"(:root{color-scheme:light dark;--paper:#fff;--ink:#1d2024;--soft:#5d646c;--rule:#e3e5e8;--tint:#f5f6f7;
--c0:#1f5fbf;--c1:#c4560a;--c2:#12805c;--c3:#7d4cb8;--c4:#b02a4c;--c5:#52707d;--good:#12805c;--bad:#b3261e}
@media (prefers-color-scheme:dark){:root{--paper:#15171a;--ink:#e6e8ea;--soft:#9aa1a9;--rule:#2c3035;--tint:#1c1f23;
--c0:#6ea8fe;--c1:#f2a25c;--c2:#56c596;--c3:#bd9cf0;--c4:#f08ba4;--c5:#8fb0bd;--good:#56c596;--bad:#ff8a80}}
@media print{:root{color-scheme:light;--paper:#fff;--ink:#000;--soft:#444;--rule:#ccc;--tint:#fff;
--c0:#1f5fbf;--c1:#c4560a;--c2:#12805c;--c3:#7d4cb8;--c4:#b02a4c;--c5:#52707d;--good:#12805c;--bad:#b3261e}}
.plot{display:block;width:100%;height:auto;font-family:system-ui,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
.plot text{font-size:12px;fill:var(--soft);font-variant-numeric:tabular-nums}
.plot .name{fill:var(--ink)}.plot .title{fill:var(--ink);font-size:14px;font-weight:600}
.plot .paper{fill:var(--paper)}.plot .grid{stroke:var(--rule);stroke-width:1}.plot .axis{stroke:var(--soft);stroke-width:1}
.plot .curve{fill:none;stroke-width:1.8;stroke-linejoin:round;stroke-linecap:round}
.plot .faint{fill:none;stroke-width:1;opacity:.32}.plot .dashed{fill:none;stroke-width:1.4;stroke-dasharray:5 4}
.plot .restart{stroke-width:1.2;stroke-dasharray:2 3}.plot .limit{stroke:var(--ink);stroke-width:1.4;stroke-dasharray:6 4}.plot .saved{stroke-width:1.6}
.plot .dot{stroke:var(--paper);stroke-width:1.2}.plot .area{stroke:var(--paper);stroke-width:.5;opacity:.75}
.plot .span{stroke-width:2}.plot .bar{opacity:.85}
.s0{stroke:var(--c0)}.s1{stroke:var(--c1)}.s2{stroke:var(--c2)}.s3{stroke:var(--c3)}.s4{stroke:var(--c4)}.s5{stroke:var(--c5)}
.f0{fill:var(--c0)}.f1{fill:var(--c1)}.f2{fill:var(--c2)}.f3{fill:var(--c3)}.f4{fill:var(--c4)}.f5{fill:var(--c5)}
.plot text.f0,.plot text.f1,.plot text.f2,.plot text.f3,.plot text.f4,.plot text.f5{font-weight:600}
.plot text.f0{fill:var(--c0)}.plot text.f1{fill:var(--c1)}.plot text.f2{fill:var(--c2)}.plot text.f3{fill:var(--c3)}.plot text.f4{fill:var(--c4)}.plot text.f5{fill:var(--c5)}
)";
}

void Svg::line(double x1, double y1, double x2, double y2, std::string_view classes) {
  body_ += fmt::format(R"(<line x1="{}" y1="{}" x2="{}" y2="{}" class="{}"/>)", px(x1), px(y1),
                       px(x2), px(y2), classes) +
           "\n";
}

void Svg::text(double x, double y, Align align, std::string_view classes,
               std::string_view content) {
  const char* anchor = align == Align::start ? "start" : align == Align::end ? "end" : "middle";
  body_ += fmt::format(R"(<text x="{}" y="{}" text-anchor="{}" class="{}">{}</text>)", px(x), px(y),
                       anchor, classes, escaped(content)) +
           "\n";
}

void Svg::text_upwards(double x, double y, std::string_view classes, std::string_view content) {
  body_ +=
      fmt::format(
          R"x(<text transform="translate({} {}) rotate(-90)" text-anchor="middle" class="{}">{}</text>)x",
          px(x), px(y), classes, escaped(content)) +
      "\n";
}

void Svg::rectangle(double x, double y, double width, double height, std::string_view classes) {
  body_ += fmt::format(R"(<rect x="{}" y="{}" width="{}" height="{}" class="{}"/>)", px(x), px(y),
                       px(width), px(height), classes) +
           "\n";
}

void Svg::circle(double x, double y, double radius, std::string_view classes) {
  body_ += fmt::format(R"(<circle cx="{}" cy="{}" r="{}" class="{}"/>)", px(x), px(y), px(radius),
                       classes) +
           "\n";
}

void Svg::polyline(const Points& points, std::string_view classes) {
  if (points.empty()) return;
  body_ +=
      fmt::format(R"(<polyline points="{}" class="{}"/>)", points_text(points), classes) + "\n";
}

void Svg::polygon(const Points& points, std::string_view classes) {
  if (points.empty()) return;
  body_ += fmt::format(R"(<polygon points="{}" class="{}"/>)", points_text(points), classes) + "\n";
}

void Svg::begin_note(std::string_view note) {
  body_ += fmt::format("<g><title>{}</title>", escaped(note));
}

void Svg::begin_clip(std::string_view id, double x, double y, double width, double height) {
  body_ +=
      fmt::format(
          R"x(<clipPath id="{0}"><rect x="{1}" y="{2}" width="{3}" height="{4}"/></clipPath><g clip-path="url(#{0})">)x",
          escaped(id), px(x), px(y), px(width), px(height)) +
      "\n";
}

std::string Svg::inline_text(double width, double height, std::string_view label) const {
  return fmt::format(R"(<svg xmlns="http://www.w3.org/2000/svg" class="plot" viewBox="0 0 {} {}" )"
                     R"(role="img" aria-label="{}">)",
                     px(width), px(height), escaped(label)) +
         "\n" + body_ + "</svg>\n";
}

std::string Svg::file_text(double width, double height, std::string_view label) const {
  return fmt::format(
             R"(<svg xmlns="http://www.w3.org/2000/svg" class="plot" viewBox="0 0 {0} {1}" )"
             R"(width="{0}" height="{1}" role="img" aria-label="{2}">)",
             px(width), px(height), escaped(label)) +
         "\n<style>" + plain_style() + "</style>\n" +
         fmt::format(R"(<rect width="{}" height="{}" class="paper"/>)", px(width), px(height)) +
         "\n" + body_ + "</svg>\n";
}

}  // namespace finetune::plot
