#pragma once
// SPDX-License-Identifier: Apache-2.0
// Which checkpoints stay.

#include <cstdint>
#include <filesystem>

#include "checkpoint/find.hpp"
#include "comm/communicator.hpp"

namespace finetune::checkpoint {

/// Keeps the newest `keep` good checkpoints in `root` among those of steps up to `newest_step` and
/// removes the good ones before them. Damaged ones neither count nor are removed: somebody may want
/// to look at them. Nor are those of later steps, which another run left there.
///
/// To be called after a save. Problems are warnings: an old checkpoint too many harms nobody.
/// Collective on `world`.
void retire(const comm::Communicator& world, const std::filesystem::path& root, std::int64_t keep,
            std::int64_t newest_step = any_step);

}  // namespace finetune::checkpoint
