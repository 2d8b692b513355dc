// SPDX-License-Identifier: Apache-2.0
#include "report/detail/sections.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "core/text.hpp"
#include "metrics/progress.hpp"
#include "plot/smooth.hpp"
#include "plot/svg.hpp"
#include "report/detail/html.hpp"
#include "report/detail/rows.hpp"

namespace finetune::report::detail {
namespace {

using plot::escaped;

const core::Json& facts_of(const RunHistory& run) {
  static const core::Json none = core::Json::object();
  return run.starts.empty() ? none : run.starts.back().facts;
}

std::string count_text(const core::Json& facts, const char* name) {
  const auto number = number_of(facts, name);
  return number ? core::with_commas(static_cast<std::int64_t>(*number)) : "";
}

std::string steps_text(const RunHistory& run) {
  const std::string done = core::with_commas(run.last_step());
  const auto all = run.num_steps();
  return all ? done + " of " + core::with_commas(*all) : done;
}

std::string last_loss(const RunHistory& run) {
  plot::Points points;
  for (const StepRow& row : run.steps)
    points.emplace_back(row.step, row.loss);
  const auto smooth = plot::smoothed(points, plot::usual_weight(points.size()));
  return smooth.empty() ? "" : fmt::format("{:.4f}", smooth.back().second);
}

const ValidationRow* best_validation(const RunHistory& run) {
  const ValidationRow* best = nullptr;
  for (const ValidationRow& row : run.validations)
    if (std::isfinite(row.loss) && (best == nullptr || row.loss < best->loss)) best = &row;
  return best;
}

std::string tokens_per_s(const RunHistory& run) {
  double tokens = 0, seconds = 0;
  for (const StepRow& row : run.steps) {
    if (!std::isfinite(row.tokens) || !std::isfinite(row.step_s)) continue;
    tokens += row.tokens;
    seconds += row.step_s;
  }
  return seconds > 0 ? core::with_commas(std::llround(tokens / seconds)) : "";
}

std::string model_text(const RunHistory& run) {
  const std::string folder = text_of(facts_of(run), "model");
  return folder.empty() ? run.deck_text("model.path") : folder;
}

std::string method_text(const RunHistory& run) {
  std::string method = text_of(facts_of(run), "method");
  if (method.empty()) method = run.deck_text("adapter.name");
  return method == "none" || method == "full" ? "all weights" : method;
}

std::string hosts_text(const core::Json& facts) {
  constexpr std::size_t most = 6;
  std::vector<std::string> names;
  if (const auto hosts = facts.find("hosts"); hosts != facts.end() && hosts->is_array())
    for (const core::Json& host : *hosts)
      if (host.is_string()) names.push_back(host.get<std::string>());
  const std::size_t more = names.size() > most ? names.size() - most : 0;
  names.resize(names.size() - more);
  return fmt::format("{}{}", fmt::join(names, ", "),
                     more > 0 ? fmt::format(" and {} more", more) : "");
}

std::string ranks_text(const core::Json& facts) {
  const std::string ranks = count_text(facts, "num_ranks"), nodes = count_text(facts, "num_nodes");
  if (ranks.empty()) return "";
  const std::string device = text_of(facts, "device") == "gpu" ? ", a GPU each" : ", on CPUs";
  return ranks + " on " + nodes + (nodes == "1" ? " node" : " nodes") + device;
}

std::string state_text(const Verdict& verdict) {
  const std::string state = to_string(verdict.state);
  return fmt::format("<p><span class=\"state {}\">{}</span>: {}.</p>\n", state, state,
                     escaped(verdict.why));
}

std::string head_of_one(const ReportedRun& reported) {
  const RunHistory& run = reported.history;
  const core::Json& facts_json = facts_of(run);
  const ValidationRow* best = best_validation(run);
  const auto step_s = run.median_step_s();
  return facts({{"Steps", steps_text(run)},
                {"Loss, smoothed", last_loss(run)},
                {"Best validation loss",
                 best ? fmt::format("{:.4f} at step {}", best->loss, best->step) : ""},
                {"Tokens per second", tokens_per_s(run)},
                {"Step, median", step_s ? fmt::format("{:.3g} s", *step_s) : ""},
                {"Restarts", std::to_string(reported.verdict.num_restarts)},
                {"Model", model_text(run)},
                {"Trained", method_text(run)},
                {"Parameters", count_text(facts_json, "num_parameters")},
                {"Trainable", count_text(facts_json, "num_trainable")},
                {"Ranks", ranks_text(facts_json)},
                {"Hosts", hosts_text(facts_json)},
                {"Precision", run.deck_text("precision.mode")},
                {"Folder", run.folder.string()}});
}

std::string head_of_many(ReportedRuns runs) {
  std::vector<TableRow> rows;
  for (const ReportedRun& reported : runs) {
    const RunHistory& run = reported.history;
    const ValidationRow* best = best_validation(run);
    rows.push_back({text(run.name), text(to_string(reported.verdict.state)),
                    number(steps_text(run)), number(last_loss(run)),
                    number(best ? fmt::format("{:.4f}", best->loss) : ""),
                    number(tokens_per_s(run)), text(method_text(run)), text(model_text(run)),
                    text(ranks_text(facts_of(run)))});
  }
  return table({"Run", "State", "Steps", "Loss, smoothed", "Best validation", "Tokens/s", "Trained",
                "Model", "Ranks"},
               rows);
}

}  // namespace

std::string subtitle(ReportedRuns runs, const RunHistory& run) {
  return runs.size() > 1 ? fmt::format("<h3>{}</h3>\n", escaped(run.name)) : "";
}

std::string head(ReportedRuns runs) {
  if (runs.size() > 1)
    return fmt::format("<header>\n<p>Fine-tuning report</p>\n<h1>{} runs</h1>\n</header>\n",
                       runs.size()) +
           head_of_many(runs);
  return fmt::format("<header>\n<p>Fine-tuning report</p>\n<h1>{}</h1>\n{}</header>\n",
                     escaped(runs.front().history.name), state_text(runs.front().verdict)) +
         head_of_one(runs.front());
}

std::string slowest_ranks(ReportedRuns runs) {
  constexpr std::size_t most = 8;
  std::string out;
  for (const auto& [run, verdict] : runs) {
    std::map<std::pair<std::int64_t, std::string>, int> times;
    for (const TimesRow& row : run.times)
      if (row.slowest_rank >= 0) ++times[{row.slowest_rank, row.slowest_host}];
    std::vector<std::pair<int, std::pair<std::int64_t, std::string>>> order;
    for (const auto& [rank, count] : times)
      order.emplace_back(-count, rank);
    std::ranges::sort(order);
    std::vector<TableRow> rows;
    for (const auto& [count, rank] : order) {
      if (rows.size() == most) break;
      rows.push_back({number(std::to_string(rank.first)), text(rank.second),
                      number(fmt::format("{:.0f} %",
                                         -100.0 * count / static_cast<double>(run.times.size())))});
    }
    const std::string list = table({"Rank", "Host", "Others waited for it in"}, rows);
    if (!list.empty()) out += subtitle(runs, run) + list;
  }
  return out;
}

std::string slow_devices(ReportedRuns runs) {
  constexpr std::size_t most = 32;
  std::string out;
  for (const auto& [run, verdict] : runs) {
    using Trouble = std::tuple<std::int64_t, std::string, std::string>;
    std::map<Trouble, std::pair<std::int64_t, std::int64_t>> steps;
    for (const DevicesRow& row : run.devices)
      for (const DevicesRow::Slow& slow : row.slow)
        steps.try_emplace({slow.rank, slow.host, slow.why}, row.step, row.step)
            .first->second.second = row.step;
    std::vector<TableRow> rows;
    for (const auto& [trouble, from_to] : steps) {
      if (rows.size() == most) break;
      const auto& [rank, host, why] = trouble;
      rows.push_back({number(std::to_string(rank)), text(host), text(why),
                      text(fmt::format("{} to {}", from_to.first, from_to.second))});
    }
    const std::string list = table({"Rank", "Host", "Its GPU is slow", "Steps"}, rows);
    if (!list.empty()) out += subtitle(runs, run) + list;
  }
  return out;
}

std::string planned_memory(ReportedRuns runs) {
  std::vector<std::string> head = {"Planned for"};
  std::map<std::string, std::vector<double>> categories;
  std::size_t column = 0;
  for (const auto& [run, verdict] : runs) {
    const auto planned = facts_of(run).find("planned_bytes");
    if (planned == facts_of(run).end() || !planned->is_object()) continue;
    head.push_back(runs.size() > 1 ? run.name : "Bytes");
    ++column;
    for (const auto& [category, bytes] : planned->items()) {
      if (!bytes.is_number()) continue;
      categories[category].resize(column, 0);
      categories[category].back() = bytes.get<double>();
    }
    if (!run.timeline) continue;
    head.push_back(head.back() + ", most while profiled");
    ++column;
    for (const auto& [use, mib] : run.timeline->mib) {
      // Of GPUs all together is known, which is no category.
      if (use == "tensors") continue;
      categories[use].resize(column, 0);
      if (!mib.empty()) categories[use].back() = *std::ranges::max_element(mib) * (1 << 20);
    }
  }
  std::vector<TableRow> rows;
  for (auto& [category, bytes] : categories) {
    bytes.resize(column, 0);
    rows.push_back({text(category)});
    for (const double value : bytes)
      rows.back().push_back(number(core::human_bytes(static_cast<std::int64_t>(value))));
  }
  return table(head, rows);
}

std::string starts(ReportedRuns runs) {
  std::string out;
  for (const auto& [run, verdict] : runs) {
    std::vector<TableRow> rows;
    for (std::size_t i = 0; i < run.starts.size(); ++i) {
      const Start& start = run.starts[i];
      const bool is_last = i + 1 == run.starts.size();
      const bool is_gone = !start.end && (!is_last || verdict.state == RunState::dead);
      const std::string error = is_gone ? run.last_error_of(i) : "";
      const std::string how =
          start.end || is_gone ? how_it_ended(start, error) : to_string(verdict.state);
      rows.push_back(
          {text(time_text(start.unix_time_s)), number(std::to_string(start.step)),
           number(start.end ? std::to_string(start.end->step)
                  : is_last ? std::to_string(run.last_step())
                            : "?"),
           text(start.end ? metrics::human_seconds(start.end->unix_time_s - start.unix_time_s)
                          : ""),
           number(start.end ? std::to_string(start.end->exit_code) : ""), long_text(how)});
    }
    const std::string list =
        table({"Started", "From step", "To step", "Lasted", "Exit code", "How it ended"}, rows);
    if (!list.empty()) out += subtitle(runs, run) + list;
  }
  return out;
}

std::string checkpoints(ReportedRuns runs) {
  constexpr std::size_t most = 20;
  std::string out;
  for (const auto& [run, verdict] : runs) {
    std::vector<TableRow> rows;
    const std::size_t first = run.checkpoints.size() > most ? run.checkpoints.size() - most : 0;
    for (std::size_t i = first; i < run.checkpoints.size(); ++i) {
      const CheckpointRow& row = run.checkpoints[i];
      const bool is_there = std::ranges::binary_search(run.checkpoint_folders, row.step);
      rows.push_back({number(std::to_string(row.step)), text(row.level),
                      number(core::human_bytes(static_cast<std::int64_t>(row.bytes))),
                      number(fmt::format("{:.2f} s", row.blocked_s)),
                      number(fmt::format("{:.2f} s", row.write_s)),
                      number(fmt::format("{:.2f} s", row.total_s)), text(is_there ? "yes" : "no")});
    }
    const std::string list = table({"Step", "Level", "Size", "Training blocked", "Written in",
                                    "Complete after", "Still there"},
                                   rows);
    if (list.empty() && run.other_branches.empty()) continue;
    out += subtitle(runs, run) + list;
    if (!run.other_branches.empty())
      out += facts({{"Other branches in its folder", run.other_branches}});
    if (first > 0)
      out +=
          fmt::format("<p class=\"note\">The last {} of {}.</p>\n", most, run.checkpoints.size());
  }
  return out;
}

}  // namespace finetune::report::detail
