// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/load/best.hpp"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "checkpoint/format/detail/candidate.hpp"
#include "checkpoint/format/detail/folder.hpp"
#include "checkpoint/format/layout.hpp"
#include "checkpoint/load/branch.hpp"
#include "core/error.hpp"
#include "core/log.hpp"

namespace finetune::checkpoint {

FoundCheckpoint open_best(const std::filesystem::path& root) {
  const Branch branch = read_branch(root);
  const auto& steps = branch.steps;
  tell_others(root, branch);
  if (steps.empty()) core::fail(core::ErrorKind::input, no_checkpoint_in(root));
  std::optional<FoundCheckpoint> best;
  for (const std::int64_t step : steps) {
    try {
      FoundCheckpoint found = parse(read_candidate(root / folder_name(step)));
      check_file_sizes(found);
      const std::optional<Score> score = found.state.measured();
      if (!score) continue;
      // What the newest one is measured by counts: other scores are of another kind.
      const std::optional<Score> of_best = best ? best->state.measured() : std::nullopt;
      if (!of_best || (score->name == of_best->name && score->is_better_than(*of_best)))
        best = std::move(found);
    } catch (const core::Error& error) {
      log::warn(fmt::format("{} is skipped: {}", folder_name(step), error.what()));
    }
  }
  if (!best) {
    core::fail(
        core::ErrorKind::input,
        {root.string(), "no good checkpoint there has a validation loss or another score",
         "one is noted where a checkpoint is saved right after a validation or evaluation",
         "Make checkpoint.save_steps a multiple of train.validate_steps or evaluate.steps (or "
         "save_epochs one of their epochs), or name a step folder."});
  }
  return std::move(*best);
}

}  // namespace finetune::checkpoint
