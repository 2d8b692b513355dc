#pragma once
// SPDX-License-Identifier: Apache-2.0
// Which checkpoints stay.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "checkpoint/format/layout.hpp"
#include "checkpoint/run_state.hpp"

namespace finetune::checkpoint {

/// How many checkpoints stay. One that any of the rules keeps, stays.
struct Retention {
  std::int64_t newest = 2;  ///< at least 1
  std::int64_t every = 0;   ///< those of multiples of so many steps; 0: none for that
  std::int64_t best = 0;    ///< those of the best scores
};

/// A good checkpoint, as far as retention is concerned.
struct GoodCheckpoint {
  std::int64_t step = 0;
  std::optional<Score> score = {};  ///< none: nothing was measured right before it was saved
};

/// Steps that no rule keeps. `good`: newest first. Scores count that have the name of the newest
/// one: others measure something else.
std::vector<std::int64_t> superfluous(std::span<const GoodCheckpoint> good,
                                      const Retention& retention);

/// Removes the good checkpoints in `root` that `retention` does not keep, of steps up to
/// `newest_step`. Damaged ones neither count nor are removed: a person may want to look at them.
/// Nor are those of other branches than that of `newest_step`, and those of later steps.
///
/// To be called after a save, by one rank. Problems are warnings: an old checkpoint too many harms
/// nobody. Calls neither MPI nor HDF5.
void retire(const std::filesystem::path& root, const Retention& retention, std::int64_t newest_step,
            Level level = Level::shared);

}  // namespace finetune::checkpoint
