#pragma once
// SPDX-License-Identifier: Apache-2.0
// Which pictures there are of runs.

#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "plot/line_plot.hpp"
#include "report/run_history.hpp"

namespace finetune::report {

using Picture = std::variant<plot::LinePlot, plot::LayerPlot, plot::RangePlot>;

/// What `finetune report --svg` knows.
std::vector<std::string> picture_names();

/// The pictures of this name: one for all runs, or for what is not laid over each other one per
/// run. None where no run has what it shows. `spacing`: of losses.
std::vector<Picture> pictures(const std::string& name, std::span<const RunHistory> runs,
                              plot::Spacing spacing = plot::Spacing::linear);

/// Without the bytes of plot::style_sheet, for a page.
std::string to_svg(const Picture& picture);
std::string to_svg_file(const Picture& picture);

/// "waiting for others" for "exposed_s".
std::string part_name(const std::string& field);

/// Means over the steps of `times`, by part: over ranks the least, the median and the largest.
std::vector<std::pair<std::string, Spread>> mean_times(std::span<const TimesRow> times);

}  // namespace finetune::report
