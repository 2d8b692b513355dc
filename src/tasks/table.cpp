// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "tasks/results.hpp"

namespace finetune::tasks {
namespace {

using Cells = std::vector<std::string>;

std::string number(double value, bool is_part) {
  return is_part ? fmt::format("{:.1f}", 100 * value) : fmt::format("{:.4g}", value);
}

std::string cell_of(const Figure& figure) {
  const bool is_part = !figure.less_is_better;
  std::string text =
      fmt::format("{} [{}, {}]", number(figure.estimate.mean, is_part),
                  number(figure.estimate.low, is_part), number(figure.estimate.high, is_part));
  if (figure.is_first) return text;
  // Better or worse by more than chance makes of one in twenty.
  constexpr double surely = 0.05;
  const std::string p = figure.p < 0.001 ? "p < 0.001" : fmt::format("p = {:.3f}", figure.p);
  return text + fmt::format(" {}{}", p, figure.p < surely ? " *" : "");
}

std::string lined_up(const std::vector<Cells>& rows) {
  std::vector<std::size_t> widths;
  for (const Cells& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Cells& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i)
      line += fmt::format("{:<{}}  ", row[i], widths[i]);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace

std::string table_of(const std::vector<Figure>& figures) {
  Cells models;
  std::vector<std::pair<std::string, std::string>> lines;
  std::map<std::pair<std::string, std::string>, std::map<std::string, const Figure*>> cells;
  for (const Figure& figure : figures) {
    if (std::ranges::find(models, figure.model) == models.end()) models.push_back(figure.model);
    const std::pair line(figure.task, figure.metric);
    if (!cells.contains(line)) lines.push_back(line);
    cells[line][figure.model] = &figure;
  }
  std::vector<Cells> rows{{"task", "metric", "questions"}};
  rows[0].insert(rows[0].end(), models.begin(), models.end());
  for (const auto& line : lines) {
    const auto& of_line = cells.at(line);
    Cells row{line.first, line.second, fmt::format("{}", of_line.begin()->second->num_questions)};
    for (const std::string& model : models) {
      const auto found = of_line.find(model);
      row.push_back(found == of_line.end() ? "-" : cell_of(*found->second));
    }
    rows.push_back(std::move(row));
  }
  std::string text = lined_up(rows);
  text += "Shares in percent, with the interval that holds 95 of 100 such sets of questions.";
  if (models.size() > 1)
    text += fmt::format(" p: how likely such a difference from {} is by chance; *: below 5 %.",
                        models.front());
  return text + "\n";
}

}  // namespace finetune::tasks
