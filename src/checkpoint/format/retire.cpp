// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/format/retire.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <optional>

#include "checkpoint/format/detail/candidate.hpp"
#include "checkpoint/format/detail/folder.hpp"
#include "checkpoint/format/layout.hpp"
#include "core/error.hpp"
#include "core/log.hpp"

namespace finetune::checkpoint {
namespace {

std::optional<GoodCheckpoint> look_at(const std::filesystem::path& folder, Level level) {
  try {
    const FoundCheckpoint found = parse(read_candidate(folder));
    // A node has some of the files only.
    if (level == Level::shared) check_file_sizes(found);
    return GoodCheckpoint{
        found.step, found.state.validation_loss.value_or(std::numeric_limits<double>::quiet_NaN())};
  } catch (const core::Error&) {
    return std::nullopt;
  }
}

}  // namespace

std::vector<std::int64_t> superfluous(std::span<const GoodCheckpoint> good,
                                      const Retention& retention) {
  std::vector<GoodCheckpoint> by_loss;
  for (const GoodCheckpoint& kept : good) {
    if (!std::isnan(kept.validation_loss)) by_loss.push_back(kept);
  }
  // Of equal losses the newest comes first, as it does in `good`.
  std::ranges::stable_sort(by_loss, {}, &GoodCheckpoint::validation_loss);
  by_loss.resize(std::min(by_loss.size(), static_cast<std::size_t>(retention.best)));
  std::vector<std::int64_t> steps;
  for (std::size_t i = 0; i < good.size(); ++i) {
    const std::int64_t step = good[i].step;
    const bool stays = static_cast<std::int64_t>(i) < retention.newest ||
                       (retention.every > 0 && step % retention.every == 0) ||
                       std::ranges::find(by_loss, step, &GoodCheckpoint::step) != by_loss.end();
    if (!stays) steps.push_back(step);
  }
  return steps;
}

void retire(const std::filesystem::path& root, const Retention& retention, std::int64_t newest_step,
            Level level) {
  core::check(retention.newest >= 1, "at least one checkpoint is kept");
  try {
    std::vector<GoodCheckpoint> good;
    for (const std::int64_t step : list_steps(root)) {
      if (step > newest_step) continue;
      if (const auto kept = look_at(root / folder_name(step), level)) good.push_back(*kept);
    }
    for (const std::int64_t step : superfluous(good, retention))
      remove_checkpoint(root, step);
  } catch (const std::exception& error) {
    log::warn(fmt::format("old checkpoints stay: {}", error.what()));
  }
}

}  // namespace finetune::checkpoint
