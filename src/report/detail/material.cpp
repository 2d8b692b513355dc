// SPDX-License-Identifier: Apache-2.0
// What went into a run and came out of it: data, answers, decks, warnings.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/text.hpp"
#include "plot/svg.hpp"
#include "report/detail/html.hpp"
#include "report/detail/rows.hpp"
#include "report/detail/sections.hpp"
#include "report/pictures.hpp"

namespace finetune::report::detail {
namespace {

using plot::escaped;

/// Samples by length, as bars.
std::string lengths(const core::Json& report, const std::string& name) {
  const auto found = report.find("histogram");
  if (found == report.end() || !found->is_array()) return "";
  plot::RangePlot plot{"Tokens per sample, " + name, {}};
  for (const core::Json& bin : *found) {
    if (!bin.is_array() || bin.size() != 2 || !bin[0].is_number() || !bin[1].is_number()) continue;
    const auto from = bin[0].get<std::int64_t>();
    const auto samples = bin[1].get<double>();
    plot.ranges.push_back({fmt::format("from {}", core::with_commas(from)), samples, samples,
                           samples, core::with_commas(std::llround(samples)), 0});
  }
  if (plot.ranges.empty()) return "";
  return fmt::format("<figure>\n<figcaption>{}</figcaption>\n{}</figure>\n", escaped(plot.title),
                     plot::to_svg(plot));
}

/// Words for a field of the data report.
std::string words(std::string field) {
  static const std::map<std::string, std::string> known = {
      {"answers", "answers trained on"},
      {"end_tokens", "answers by what ends them"},
      {"eos_trained", "samples that end in a trained end token"},
      {"longest", "longest sample, tokens"},
      {"masked", "samples without a trained token"},
      {"overlong", "samples too long"},
      {"read", "samples read"},
      {"samples", "samples trained on"},
      {"truncated", "samples cut"}};
  if (const auto found = known.find(field); found != known.end()) return found->second;
  std::ranges::replace(field, '_', ' ');
  return field;
}

std::string value_text(const core::Json& value) {
  std::string text;
  for (const core::Json& pair : value.is_array() ? value : core::Json::array())
    if (pair.is_array() && pair.size() == 2 && pair[0].is_string() && pair[1].is_number_integer())
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", pair[0].get<std::string>(),
                          core::with_commas(pair[1].get<std::int64_t>()));
  if (!text.empty()) return text;
  if (value.is_number_integer()) return core::with_commas(value.get<std::int64_t>());
  if (!value.is_number()) return "";
  return fmt::format("{:.1f} %", 100 * value.get<double>());  // parts of a whole
}

std::string deck_differences(ReportedRuns runs) {
  std::set<std::string> keys;
  for (const auto& [run, verdict] : runs)
    for (const auto& [key, value] : run.deck_values)
      keys.insert(key);
  std::vector<std::string> head = {"Key"};
  for (const auto& [run, verdict] : runs)
    head.push_back(run.name);
  std::vector<TableRow> rows;
  for (const std::string& key : keys) {
    TableRow row = {text(key)};
    std::set<std::string> values;
    for (const auto& [run, verdict] : runs) {
      const auto found = run.deck_values.find(key);
      const std::string value = found == run.deck_values.end() ? "" : found->second;
      values.insert(value);
      row.push_back(long_text(value));
    }
    if (values.size() > 1) rows.push_back(std::move(row));
  }
  if (rows.empty()) return "<p>The decks are the same.</p>\n";
  return table(head, rows);
}

}  // namespace

std::string data(ReportedRuns runs) {
  std::string out;
  for (const auto& [run, verdict] : runs) {
    std::string own;
    for (const core::Json& report : run.data) {
      const std::string name = text_of(report, "name");
      std::vector<std::pair<std::string, std::string>> rows;
      for (const auto& [field, value] : report.items()) {
        const bool is_zero = value.is_number() && value.get<double>() == 0;
        if (field != "name" && field != "load_s" && !is_zero)
          rows.emplace_back(words(field), value_text(value));
      }
      own += fmt::format("<h3>{}</h3>\n", escaped(name.empty() ? "data" : name)) + facts(rows) +
             "<div class=\"figures\">\n" + lengths(report, name) + "</div>\n";
    }
    if (!own.empty()) out += subtitle(runs, run) + own;
  }
  return out;
}

std::string answers(ReportedRuns runs) {
  std::string out;
  for (const auto& [run, verdict] : runs) {
    if (run.answers.empty()) continue;
    const AnswersRow &before = run.answers.front(), &after = run.answers.back();
    const bool has_both = run.answers.size() > 1;
    std::vector<TableRow> rows;
    for (std::size_t i = 0; i < after.answers.size(); ++i) {
      const Answer& last = after.answers[i];
      rows.push_back({long_text(last.prompt)});
      if (has_both)
        rows.back().push_back(long_text(i < before.answers.size() ? before.answers[i].answer : ""));
      rows.back().push_back(long_text(last.answer));
      rows.back().push_back(long_text(last.expected));
    }
    std::vector<std::string> head = {"Question"};
    if (has_both) head.push_back(fmt::format("After step {}", before.step));
    head.push_back(fmt::format("After step {}", after.step));
    head.push_back("Expected");
    out += subtitle(runs, run) + table(head, rows);
  }
  return out;
}

std::string tasks(ReportedRuns runs) {
  std::string out;
  for (const auto& [run, verdict] : runs) {
    if (run.evaluations.empty()) continue;
    const EvaluationRow &first = run.evaluations.front(), &last = run.evaluations.back();
    std::vector<TableRow> rows;
    for (const EvaluationRow::Measured& one : last.measured) {
      const EvaluationRow::Measured* before = first.find(one.name);
      const auto with_error = [](const EvaluationRow::Measured& value) {
        return fmt::format("{:.4g} ± {:.2g}", value.value, value.standard_error);
      };
      rows.push_back({text(one.name), number(before != nullptr ? with_error(*before) : ""),
                      number(with_error(one))});
    }
    out += subtitle(runs, run) + table({"Task and measure", fmt::format("Step {}", first.step),
                                        fmt::format("Step {}", last.step)},
                                       rows);
  }
  return out.empty() ? out
                     : out +
                           "<p class=\"note\">With standard errors. Intervals, tests against step "
                           "0 and every answer: evaluations/step-N in the run's folder.</p>\n";
}

std::string decks(ReportedRuns runs) {
  if (runs.size() > 1) return deck_differences(runs);
  const std::string& deck = runs.front().history.deck;
  if (deck.empty()) return "";
  return "<details>\n<summary>Every key with its value</summary>\n<pre>" + escaped(deck) +
         "</pre>\n</details>\n";
}

std::string warnings(ReportedRuns runs) {
  constexpr std::size_t most = 20;
  std::string out;
  for (const auto& [run, verdict] : runs) {
    const std::size_t first = run.problems.size() > most ? run.problems.size() - most : 0;
    std::vector<TableRow> rows;
    for (std::size_t i = first; i < run.problems.size(); ++i)
      rows.push_back({text(run.problems[i].time), long_text(run.problems[i].text)});
    if (rows.empty()) continue;
    out += subtitle(runs, run) + table({"Time", "Message"}, rows);
    if (first > 0)
      out += fmt::format("<p class=\"note\">The last {} of {}.</p>\n", most, run.problems.size());
  }
  return out;
}

}  // namespace finetune::report::detail
