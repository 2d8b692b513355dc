// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/retire.hpp"

#include <fmt/format.h>

#include "checkpoint/candidate.hpp"
#include "checkpoint/folder.hpp"
#include "checkpoint/layout.hpp"
#include "core/error.hpp"
#include "core/log.hpp"

namespace finetune::checkpoint {
namespace {

bool is_good(const std::filesystem::path& folder) {
  try {
    check_file_sizes(parse(read_candidate(folder)));
    return true;
  } catch (const core::Error&) {
    return false;
  }
}

void retire_here(const std::filesystem::path& root, std::int64_t keep, std::int64_t newest_step) {
  std::int64_t good = 0;
  for (const std::int64_t step : list_steps(root)) {
    if (step > newest_step || !is_good(root / folder_name(step))) continue;
    if (++good > keep) remove_checkpoint(root, step);
  }
}

}  // namespace

void retire(const comm::Communicator& world, const std::filesystem::path& root, std::int64_t keep,
            std::int64_t newest_step) {
  core::check(keep >= 1, "at least one checkpoint is kept");
  if (world.is_root()) {
    try {
      retire_here(root, keep, newest_step);
    } catch (const core::Error& error) {
      log::warn(fmt::format("old checkpoints stay: {}", error.what()));
    }
  }
  world.barrier();
}

}  // namespace finetune::checkpoint
