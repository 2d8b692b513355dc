// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/load/load.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>
#include <vector>

#include "checkpoint/format/detail/convert.hpp"
#include "checkpoint/format/layout.hpp"
#include "checkpoint/load/detail/share.hpp"
#include "checkpoint/load/local.hpp"
#include "comm/agree.hpp"
#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/log.hpp"

namespace finetune::checkpoint {
namespace {

[[noreturn]] void fail_other_model(const FoundCheckpoint& found, const std::string& problem,
                                   const std::string& why) {
  core::fail(core::ErrorKind::deck,
             {found.folder.string(), problem, why,
              "Continue with the model and precision that the checkpoint was written with, or set "
              "another train.output to begin a new run."});
}

/// The stored tensor that `wanted` is a slice of.
std::int64_t find_tensor(const FoundCheckpoint& found, const WantedSlice& wanted) {
  const core::TensorSlice& slice = wanted.slice;
  const std::int64_t index = found.manifest.find(wanted.kind, slice.name);
  if (index < 0) {
    fail_other_model(found, fmt::format("it holds no {} {}", wanted.kind, slice.name),
                     "this run needs it");
  }
  const TensorEntry& stored = found.manifest.tensors[static_cast<std::size_t>(index)];
  if (stored.shape != slice.shape || !can_convert(stored.dtype, slice.dtype)) {
    fail_other_model(found,
                     fmt::format("{} {} is {} [{}]", wanted.kind, slice.name,
                                 core::name(stored.dtype), fmt::join(stored.shape, ", ")),
                     fmt::format("this run needs {} [{}]", core::name(slice.dtype),
                                 fmt::join(slice.shape, ", ")));
  }
  return index;
}

std::int64_t total_bytes(std::span<const WantedSlice> wanted) {
  std::int64_t total = 0;
  for (const WantedSlice& want : wanted)
    total += want.slice.size_bytes();
  return total;
}

/// As find. Where there is a local checkpoint, a shared level without a good one is no error.
std::optional<FoundCheckpoint> find_beside(const comm::Communicator& world, const Sources& sources,
                                           std::int64_t before_step, bool has_local) {
  try {
    return find(world, sources.root, sources.resume, before_step);
  } catch (const comm::AgreedError& error) {
    if (!has_local || error.kind() != core::ErrorKind::input) throw;
    log::warn(error.what());
    return std::nullopt;
  }
}

}  // namespace

LoadReport load(const comm::Communicator& world, const FoundCheckpoint& found,
                std::span<const WantedSlice> wanted) {
  const core::Stopwatch watch;
  // Two agreements: a run of another model is refused before anybody reads.
  std::vector<Converted> converted;
  const auto parts = comm::agree(world, [&] {
    std::vector<ReadPart> all;
    for (const WantedSlice& want : wanted) {
      const std::int64_t tensor = find_tensor(found, want);
      const core::DType stored = found.manifest.tensors[static_cast<std::size_t>(tensor)].dtype;
      std::byte* target = want.data;
      if (stored != want.slice.dtype) target = converted.emplace_back(stored, want).stored_bytes();
      const auto more = parts_of(found, tensor, want.slice, target);
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  });
  std::int64_t totals[] = {read_once(world, found, parts), total_bytes(wanted)};
  for (Converted& slice : converted)
    slice.convert();
  world.all_reduce(std::span<std::int64_t>(totals), comm::Reduce::sum);
  return {totals[0], totals[1], watch.seconds()};
}

std::optional<FoundCheckpoint> find_and_load(const comm::Communicator& world,
                                             const Sources& sources, const AskWanted& ask_wanted,
                                             LoadReport* report) {
  std::int64_t before_step = any_step;
  std::int64_t before_local_step = any_step;
  bool has_failed = false;
  std::optional<std::vector<WantedSlice>> wanted;
  const bool has_local = sources.resume == "auto" && !sources.local_root.empty();
  while (true) {
    std::optional<FoundCheckpoint> local;
    if (has_local) {
      local =
          find_local(world, sources.node, sources.local_root, sources.run_id, before_local_step);
    }
    std::optional<FoundCheckpoint> found =
        find_beside(world, sources, before_step, local.has_value());
    const bool is_local = local && (!found || local->step > found->step);
    if (is_local) found = std::move(local);
    if (!found && !has_failed) return found;
    if (!found) {
      // What was read of a damaged one must not be taken for a beginning.
      throw comm::AgreedError(
          core::ErrorKind::input,
          core::to_string({sources.root.string(), "no checkpoint of this run can be used",
                           "the warnings above say why",
                           "Restore one from a copy, or set checkpoint.resume = \"never\" to "
                           "start anew."}));
    }
    try {
      comm::agree(world, [&] {
        if (sources.accept) sources.accept(*found);
      });
      if (!wanted) wanted = comm::agree(world, ask_wanted);
      const LoadReport loaded = load(world, *found, *wanted);
      if (report != nullptr) *report = loaded;
      return found;
    } catch (const comm::AgreedError& error) {
      const bool is_damaged =
          error.kind() == core::ErrorKind::input || error.kind() == core::ErrorKind::io;
      if (sources.resume != "auto" || !is_damaged) throw;
      has_failed = true;
      log::warn(fmt::format("{} is skipped: {}", folder_name(found->step), error.what()));
      (is_local ? before_local_step : before_step) = found->step;
    }
  }
}

}  // namespace finetune::checkpoint
