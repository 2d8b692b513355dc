// SPDX-License-Identifier: Apache-2.0
#include "tasks/results.hpp"

#include <algorithm>
#include <cmath>

#include "core/error.hpp"

namespace finetune::tasks {
namespace {

/// Of a metric, a value for each question, or for each part of one; of perplexities the
/// log-likelihood.
std::vector<double> values_of(const Outcome& outcome, const std::string& metric) {
  std::vector<double> values;
  for (const Judged& one : outcome.judged) {
    const auto parts = one.parts.find(metric);
    if (!outcome.units.empty())
      values.push_back(one.log_likelihood);
    else if (parts == one.parts.end())
      values.push_back(one.values.at(metric));
    else
      values.insert(values.end(), parts->second.begin(), parts->second.end());
  }
  return values;
}

std::vector<double> units_of(const Outcome& outcome, const std::string& metric) {
  std::vector<double> units;
  for (const Units& one : outcome.units)
    units.push_back(metric == "token_perplexity"  ? one.tokens
                    : metric == "word_perplexity" ? one.words
                                                  : one.bytes);
  return units;
}

std::vector<std::string> metrics_in(const Outcome& outcome) {
  std::vector<std::string> names;
  if (!outcome.units.empty()) return metrics_of(Kind::perplexity);
  for (const auto& [name, value] : outcome.judged.front().values)
    names.push_back(name);
  return names;
}

Estimate estimate_of(const Outcome& outcome, const std::string& metric) {
  const std::vector<double> values = values_of(outcome, metric);
  if (outcome.units.empty()) {
    // A mean of a few shares may be so near to an end that 1.96 errors reach beyond it.
    Estimate share = estimate(values);
    share.low = std::max(0.0, share.low);
    share.high = std::min(1.0, share.high);
    return share;
  }
  Estimate result = perplexity(values, units_of(outcome, metric));
  if (metric != "bits_per_byte") return result;
  result.standard_error /= result.mean * std::log(2.0);
  for (double* value : {&result.mean, &result.low, &result.high})
    *value = std::log2(*value);
  return result;
}

void compare(const Outcome& outcome, const Outcome& first, Figure& figure) {
  const std::vector<double> own = values_of(outcome, figure.metric);
  const std::vector<double> other = values_of(first, figure.metric);
  if (own.size() != other.size()) return;
  for (std::size_t i = 0; i < own.size(); ++i) {
    figure.num_better += own[i] > other[i];
    figure.num_worse += own[i] < other[i];
  }
  figure.p = p_of_difference(own, other);
}

}  // namespace

std::vector<Figure> figures_of(const std::vector<Outcome>& outcomes) {
  std::vector<Figure> figures;
  const Outcome* first = nullptr;
  for (const Outcome& outcome : outcomes) {
    core::check(!outcome.judged.empty(), "a task asks something");
    const bool is_first = first == nullptr || first->task != outcome.task;
    if (is_first) first = &outcome;
    for (const std::string& metric : metrics_in(outcome)) {
      Figure figure{.model = outcome.model, .task = outcome.task, .metric = metric, .estimate = {}};
      figure.estimate = estimate_of(outcome, metric);
      figure.num_questions = std::ssize(values_of(outcome, metric));
      figure.is_first = is_first;
      figure.less_is_better = !outcome.units.empty();
      if (!is_first) compare(outcome, *first, figure);
      figures.push_back(std::move(figure));
    }
  }
  return figures;
}

core::Json json_of(const std::vector<Figure>& figures) {
  core::Json list = core::Json::array();
  for (const Figure& one : figures) {
    core::Json entry = {{"task", one.task},
                        {"metric", one.metric},
                        {"model", one.model},
                        {"value", one.estimate.mean},
                        {"standard_error", one.estimate.standard_error},
                        {"low", one.estimate.low},
                        {"high", one.estimate.high},
                        {"questions", one.num_questions}};
    if (!one.is_first) {
      entry["better"] = one.num_better;
      entry["worse"] = one.num_worse;
      entry["p"] = one.p;
    }
    list.push_back(std::move(entry));
  }
  return {{"figures", std::move(list)}};
}

}  // namespace finetune::tasks
