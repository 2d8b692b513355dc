// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/format/retire.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <optional>

#include "checkpoint/format/detail/candidate.hpp"
#include "checkpoint/format/detail/folder.hpp"
#include "checkpoint/format/layout.hpp"
#include "core/error.hpp"
#include "core/log.hpp"

namespace finetune::checkpoint {
namespace {

/// Of those on `line`, which the newest one that can be read begins.
std::optional<GoodCheckpoint> look_at(const std::filesystem::path& folder, Level level,
                                      std::optional<Line>& line) {
  try {
    const FoundCheckpoint found = parse(read_candidate(folder));
    if (!line) line = found.state.line();
    if (!line->holds(found.state.run_id.value_or(""), found.step)) return std::nullopt;
    // A node has some of the files only.
    if (level == Level::shared) check_file_sizes(found);
    return GoodCheckpoint{found.step, found.state.measured()};
  } catch (const core::Error&) {
    return std::nullopt;
  }
}

}  // namespace

std::vector<std::int64_t> superfluous(std::span<const GoodCheckpoint> good,
                                      const Retention& retention) {
  std::vector<GoodCheckpoint> by_score;
  for (const GoodCheckpoint& kept : good) {
    const bool counts =
        kept.score && (by_score.empty() || kept.score->name == by_score.front().score->name);
    if (counts) by_score.push_back(kept);
  }
  // Of equal scores the newest comes first, as it does in `good`.
  std::ranges::stable_sort(by_score, [](const GoodCheckpoint& a, const GoodCheckpoint& b) {
    return a.score->is_better_than(*b.score);
  });
  by_score.resize(std::min(by_score.size(), static_cast<std::size_t>(retention.best)));
  std::vector<std::int64_t> steps;
  for (std::size_t i = 0; i < good.size(); ++i) {
    const std::int64_t step = good[i].step;
    const bool stays = static_cast<std::int64_t>(i) < retention.newest ||
                       (retention.every > 0 && step % retention.every == 0) ||
                       std::ranges::find(by_score, step, &GoodCheckpoint::step) != by_score.end();
    if (!stays) steps.push_back(step);
  }
  return steps;
}

void retire(const std::filesystem::path& root, const Retention& retention, std::int64_t newest_step,
            Level level) {
  core::check(retention.newest >= 1, "at least one checkpoint is kept");
  try {
    std::vector<GoodCheckpoint> good;
    std::optional<Line> line;
    for (const std::int64_t step : list_steps(root)) {
      if (step > newest_step) continue;
      if (const auto kept = look_at(root / folder_name(step), level, line)) good.push_back(*kept);
    }
    for (const std::int64_t step : superfluous(good, retention))
      remove_checkpoint(root, step);
  } catch (const std::exception& error) {
    log::warn(fmt::format("old checkpoints stay: {}", error.what()));
  }
}

}  // namespace finetune::checkpoint
