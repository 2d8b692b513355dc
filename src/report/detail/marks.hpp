#pragma once
// SPDX-License-Identifier: Apache-2.0
// What pictures of runs have in common: points of rows, and marks of starts and checkpoints.

#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include "plot/line_plot.hpp"
#include "report/run_history.hpp"

namespace finetune::report::detail {

/// Starts that went on from a checkpoint, and checkpoints, also those whose rows a restart cut.
std::vector<plot::Mark> marks_of(const RunHistory& run, std::size_t colour, bool says_name);
std::vector<plot::Mark> marks_of(std::span<const RunHistory> runs);

template <typename Row, typename Value>
plot::Points points_of(const std::vector<Row>& rows, const Value& value) {
  plot::Points points;
  for (const Row& row : rows) {
    const double y = value(row);
    if (std::isfinite(y)) points.emplace_back(static_cast<double>(row.step), y);
  }
  return points;
}

}  // namespace finetune::report::detail
