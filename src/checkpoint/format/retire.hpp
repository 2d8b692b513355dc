#pragma once
// SPDX-License-Identifier: Apache-2.0
// Which checkpoints stay.

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "checkpoint/format/layout.hpp"

namespace finetune::checkpoint {

/// How many checkpoints stay. One that any of the rules keeps, stays.
struct Retention {
  std::int64_t newest = 2;  ///< at least 1
  std::int64_t every = 0;   ///< those of multiples of so many steps; 0: none for that
  std::int64_t best = 0;    ///< those of the lowest validation losses
};

/// A good checkpoint, as far as retention is concerned.
struct GoodCheckpoint {
  std::int64_t step = 0;
  double validation_loss = 0;  ///< NaN if it was not saved right after a validation
};

/// Steps that no rule keeps. `good`: newest first.
std::vector<std::int64_t> superfluous(std::span<const GoodCheckpoint> good,
                                      const Retention& retention);

/// Removes the good checkpoints in `root` that `retention` does not keep, of steps up to
/// `newest_step`. Damaged ones neither count nor are removed: a person may want to look at them.
/// Nor are those of later steps, which another run left there.
///
/// To be called after a save, by one rank. Problems are warnings: an old checkpoint too many harms
/// nobody. Calls neither MPI nor HDF5.
void retire(const std::filesystem::path& root, const Retention& retention, std::int64_t newest_step,
            Level level = Level::shared);

}  // namespace finetune::checkpoint
