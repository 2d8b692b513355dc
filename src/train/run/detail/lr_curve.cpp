// SPDX-License-Identifier: Apache-2.0
#include "train/run/detail/lr_curve.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "plot/text_plot.hpp"

namespace finetune::train {

const LrCurve::Row& LrCurve::add(std::int64_t step, double loss, double grad_norm) {
  sum_ = smoothing * sum_ + (1 - smoothing) * loss;
  const double mean = sum_ / (1 - std::pow(smoothing, static_cast<double>(rows_.size() + 1)));
  rows_.push_back({.step = step + 1,
                   .lr = range_.lr(step),
                   .loss = loss,
                   .grad_norm = grad_norm,
                   .smoothed = mean});
  return rows_.back();
}

std::size_t LrCurve::lowest() const {
  const auto first = rows_.begin() + static_cast<std::ptrdiff_t>(first_counted - 1);
  return static_cast<std::size_t>(std::ranges::min_element(first, rows_.end(), {}, &Row::smoothed) -
                                  rows_.begin());
}

bool LrCurve::has_diverged() const {
  return rows_.size() >= first_counted &&
         rows_.back().smoothed > range_.stop_factor * rows_[lowest()].smoothed;
}

LrAdvice LrCurve::advice() const {
  if (rows_.size() < 2 * first_counted)
    return {.rule = fmt::format("the curve is too short: {} steps, of which {} are averaged first",
                                rows_.size(), first_counted)};
  const std::size_t least = lowest();
  LrAdvice advice{.lowest = rows_[least].lr};
  double steepest = 0;
  for (std::size_t i = first_counted; i + 1 <= least; ++i) {
    // Steps of the learning rate are as long as each other on a scale of powers.
    const double slope = rows_[i + 1].smoothed - rows_[i - 1].smoothed;
    if (slope >= steepest) continue;
    steepest = slope;
    advice.steepest = rows_[i].lr;
  }
  if (least < first_counted || !advice.steepest) {
    advice.rule =
        "the smoothed loss never fell: begin with smaller ones (--from), or take more "
        "steps (--steps)";
    return advice;
  }
  advice.lr = rows_[least].lr / 10;
  advice.rule = "a tenth of the learning rate at which the smoothed loss is least";
  if (least + 1 == rows_.size())
    advice.rule += fmt::format("; it still fell at the last one, so a larger --to may find more");
  return advice;
}

plot::Points LrCurve::points() const {
  plot::Points points;
  for (const Row& row : rows_)
    points.emplace_back(std::log10(row.lr), row.smoothed);
  return points;
}

std::string LrCurve::table(std::size_t most_rows) const {
  constexpr std::size_t columns = 78, plot_rows = 12;
  std::string text = fmt::format("{:>5}  {:>9}  {:>9}  {:>9}  {:>9}", "step", "lr", "loss",
                                 "smoothed", "grad norm");
  const std::size_t shown = std::min(most_rows, rows_.size());
  for (std::size_t i = 0; i < shown; ++i) {
    const Row& row = rows_[shown < 2 ? 0 : i * (rows_.size() - 1) / (shown - 1)];
    text += fmt::format("\n{:>5}  {:>9.3g}  {:>9.4g}  {:>9.4g}  {:>9.3g}", row.step, row.lr,
                        row.loss, row.smoothed, row.grad_norm);
  }
  for (const std::string& line :
       plot::text_plot(points(), columns, plot_rows, plot::Letters::ascii, "log10 of lr "))
    text += "\n" + line;
  return text;
}

}  // namespace finetune::train
