// SPDX-License-Identifier: Apache-2.0
// How fast the links between ranks were, and when they were slow.
#include <fmt/format.h>

#include <algorithm>

#include "report/detail/html.hpp"
#include "report/detail/sections.hpp"

namespace finetune::report::detail {
namespace {

std::string rate_text(double bytes_per_s) {
  return fmt::format("{:.3g} GB/s", 1e-9 * bytes_per_s);
}

/// From its first row to its last one.
struct Spell {
  LinksRow::Slow worst;
  std::int64_t first_step = 0, last_step = 0;
  std::size_t last_row = 0;
};

std::vector<Spell> spells_of(const std::vector<LinksRow>& rows) {
  std::vector<Spell> spells;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (const LinksRow::Slow& slow : rows[i].slow) {
      const auto found = std::find_if(spells.begin(), spells.end(), [&](const Spell& spell) {
        return spell.last_row + 1 == i && spell.worst.axis == slow.axis &&
               spell.worst.nodes == slow.nodes;
      });
      if (found == spells.end()) {
        spells.push_back({slow, rows[i].step, rows[i].step, i});
        continue;
      }
      if (slow.bytes_per_s < found->worst.bytes_per_s) found->worst = slow;
      found->last_step = rows[i].step;
      found->last_row = i;
    }
  }
  return spells;
}

}  // namespace

std::string link_rates(ReportedRuns runs) {
  std::string out;
  for (const auto& [run, verdict] : runs) {
    if (run.links.empty()) continue;
    const LinksRow& last = run.links.back();
    std::vector<TableRow> rows;
    for (const auto& [axis, spread] : last.bytes_per_s) {
      const auto nodes = last.slowest_nodes.find(axis);
      rows.push_back({text(axis), number(rate_text(spread.median)), number(rate_text(spread.min)),
                      text(nodes == last.slowest_nodes.end() ? "" : nodes->second)});
    }
    const std::string list =
        table({"Axis", "Links now, median of its groups", "Slowest group", "On"}, rows);
    if (!list.empty()) out += subtitle(runs, run) + list;
  }
  return out;
}

std::string slow_links(ReportedRuns runs) {
  constexpr std::size_t most = 32;
  std::string out;
  for (const auto& [run, verdict] : runs) {
    std::vector<TableRow> rows;
    for (const Spell& spell : spells_of(run.links)) {
      if (rows.size() == most) break;
      rows.push_back({text(spell.worst.axis), text(spell.worst.nodes),
                      number(rate_text(spell.worst.bytes_per_s)),
                      number(rate_text(spell.worst.usual_bytes_per_s)),
                      text(fmt::format("{} to {}", spell.first_step, spell.last_step))});
    }
    const std::string list =
        table({"Axis", "Its links were slow on", "Slowest", "Usual", "Steps"}, rows);
    if (!list.empty()) out += subtitle(runs, run) + list;
  }
  return out;
}

}  // namespace finetune::report::detail
