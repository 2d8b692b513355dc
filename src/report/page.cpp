// SPDX-License-Identifier: Apache-2.0
#include "report/page.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/file.hpp"
#include "plot/svg.hpp"
#include "report/detail/html.hpp"
#include "report/detail/rows.hpp"
#include "report/detail/sections.hpp"
#include "report/pictures.hpp"

namespace finetune::report {
namespace {

using plot::escaped;

std::string legend(const std::vector<std::pair<std::string, std::size_t>>& names) {
  std::string out;
  for (const auto& [name, colour] : names)
    out += fmt::format(
        "<span><svg viewBox=\"0 0 12 9\" aria-hidden=\"true\"><rect width=\"12\" height=\"9\" "
        "rx=\"2\" class=\"f{}\"/></svg>{}</span>\n",
        colour % plot::num_colours, escaped(name));
  return "<div class=\"legend\">" + out + "</div>\n";
}

/// One curve alone needs no legend: its title says what it is.
std::string legend_of(const plot::LinePlot& plot) {
  std::vector<std::pair<std::string, std::size_t>> names;
  for (const plot::Curve& curve : plot.curves)
    if (!curve.name.empty()) names.emplace_back(curve.name, curve.colour);
  return legend(names.size() > 1 ? names : decltype(names)());
}

std::string legend_of(const plot::LayerPlot& plot) {
  std::vector<std::pair<std::string, std::size_t>> names;
  for (std::size_t i = 0; i < plot.layers.size(); ++i)
    names.emplace_back(plot.layers[i].name, i);
  return legend(names);
}

std::string legend_of(const plot::RangePlot&) {
  return "";
}

std::string figure(const Picture& picture) {
  return std::visit(
      [&](const auto& plot) {
        return fmt::format("<figure>\n<figcaption>{}</figcaption>\n{}{}</figure>\n",
                           escaped(plot.title), legend_of(plot), to_svg(picture));
      },
      picture);
}

std::string figures(std::initializer_list<const char*> names, std::span<const RunHistory> runs,
                    plot::Spacing spacing) {
  std::string out;
  for (const char* name : names)
    for (const Picture& picture : pictures(name, runs, spacing))
      out += figure(picture);
  return out.empty() ? "" : "<div class=\"figures\">\n" + out + "</div>\n";
}

/// Two folders may have the same last name: then those above them tell them apart.
void tell_apart(std::vector<ReportedRun>& runs) {
  for (ReportedRun& run : runs) {
    const auto same = std::ranges::count_if(
        runs, [&](const ReportedRun& other) { return other.history.name == run.history.name; });
    if (same > 1) run.history.name = run.history.folder.string();
  }
}

}  // namespace

ReportedRun read_reported(const std::filesystem::path& folder, double now_s) {
  ReportedRun run{read_run(folder), {}};
  run.verdict = judge(run.history, is_held(folder), now_s);
  return run;
}

std::string page(std::vector<ReportedRun> runs, double now_s, plot::Spacing spacing) {
  tell_apart(runs);
  std::vector<RunHistory> histories;
  for (const ReportedRun& run : runs)
    histories.push_back(run.history);
  constexpr const char* how_to_read =
      "<p class=\"note\">Pale: every step. Strong: smoothed. Dots: validation. Dashed upright "
      "lines: "
      "restarts. Notches on the axis: checkpoints.</p>\n";
  const std::string curves = figures(
      {"loss", "exact-match", "lr", "grad-norm", "tokens-per-s", "mfu"}, histories, spacing);
  std::string body = detail::head(runs);
  body += detail::section("Curves", curves.empty() ? "" : curves + how_to_read);
  body += detail::section("Tasks", detail::tasks(runs) + figures({"tasks"}, histories, spacing));
  body += detail::section("Where the time goes", figures({"times", "ranks"}, histories, spacing) +
                                                     detail::slowest_ranks(runs));
  body += detail::section(
      "Devices", figures({"gpu-use", "gpu-power", "gpu-clock", "cores"}, histories, spacing) +
                     detail::slow_devices(runs));
  body += detail::section("Links", figures({"links"}, histories, spacing) +
                                       detail::link_rates(runs) + detail::slow_links(runs));
  body += detail::section("Memory", figures({"memory", "memory-timeline"}, histories, spacing) +
                                        detail::planned_memory(runs));
  body += detail::section("Starts", detail::starts(runs));
  body += detail::section("Checkpoints", detail::checkpoints(runs));
  body += detail::section("Warnings and errors", detail::warnings(runs));
  body += detail::section("Sample answers", detail::answers(runs));
  body += detail::section("Data", detail::data(runs));
  body += detail::section(runs.size() > 1 ? "Differences between the decks" : "Deck",
                          detail::decks(runs));
  body += fmt::format("<footer>Written by finetune on {}.</footer>\n",
                      escaped(detail::time_text(now_s)));
  const std::string title =
      runs.size() == 1 ? runs.front().history.name : fmt::format("{} runs", runs.size());
  return detail::document(title + " · finetune", body);
}

void write_page(const std::filesystem::path& folder, double now_s) {
  core::write_text_atomically(folder / "report.html",
                              page({read_reported(folder, now_s)}, now_s, plot::Spacing::linear));
}

}  // namespace finetune::report
