// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/load.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "checkpoint/layout.hpp"
#include "checkpoint/read.hpp"
#include "comm/agree.hpp"
#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/log.hpp"

namespace finetune::checkpoint {
namespace {

[[noreturn]] void fail_other_model(const Found& found, std::string problem, std::string why) {
  core::fail(core::ErrorKind::deck,
             {found.folder.string(), std::move(problem), std::move(why),
              "Go on with the model and precision the checkpoint was made with, or set "
              "checkpoint.resume = \"never\"."});
}

/// Index of the tensor that `wanted` is a slice of.
std::int64_t find_tensor(const Found& found, const WantedSlice& wanted) {
  const core::TensorSlice& slice = wanted.slice;
  const std::int64_t index = found.manifest.find(wanted.kind, slice.name);
  if (index < 0) {
    fail_other_model(found, fmt::format("it holds no {} {}", wanted.kind, slice.name),
                     "this run needs it");
  }
  const TensorEntry& stored = found.manifest.tensors[static_cast<std::size_t>(index)];
  if (stored.dtype != slice.dtype || stored.shape != slice.shape) {
    fail_other_model(found,
                     fmt::format("{} {} is {} [{}]", wanted.kind, slice.name,
                                 core::name(stored.dtype), fmt::join(stored.shape, ", ")),
                     fmt::format("this run needs {} [{}]", core::name(slice.dtype),
                                 fmt::join(slice.shape, ", ")));
  }
  return index;
}

/// All that this rank reads, in the order it lies in the files.
std::vector<ReadPart> plan_reads(const Found& found, std::span<const WantedSlice> wanted) {
  std::vector<ReadPart> parts;
  for (const WantedSlice& want : wanted) {
    const std::int64_t tensor = find_tensor(found, want);
    const auto more = parts_of(found, tensor, want.slice.offset, want.slice.count, want.data);
    parts.insert(parts.end(), more.begin(), more.end());
  }
  std::ranges::sort(parts, {}, [](const ReadPart& part) {
    return std::tuple(part.extent->file, part.extent->position, part.first);
  });
  return parts;
}

std::int64_t total_bytes(std::span<const WantedSlice> wanted) {
  std::int64_t total = 0;
  for (const WantedSlice& want : wanted)
    total += want.slice.size_bytes();
  return total;
}

}  // namespace

LoadReport load(const comm::Communicator& world, const Found& found,
                std::span<const WantedSlice> wanted) {
  const core::Stopwatch watch;
  // Two agreements: a run of another model is refused before anybody reads.
  const auto parts = comm::agree(world, [&] { return plan_reads(found, wanted); });
  Reader reader(found);
  comm::agree(world, [&] {
    for (const ReadPart& part : parts)
      reader.read(part);
  });
  std::int64_t totals[] = {reader.bytes_read(), total_bytes(wanted)};
  world.all_reduce(std::span<std::int64_t>(totals), comm::Reduce::sum);
  return {totals[0], totals[1], watch.seconds()};
}

std::optional<Found> find_and_load(const comm::Communicator& world,
                                   const std::filesystem::path& root, const std::string& resume,
                                   std::span<const WantedSlice> wanted, LoadReport* report) {
  std::int64_t before_step = any_step;
  while (true) {
    std::optional<Found> found = find(world, root, resume, before_step);
    if (!found) return found;
    try {
      const LoadReport loaded = load(world, *found, wanted);
      if (report != nullptr) *report = loaded;
      return found;
    } catch (const comm::AgreedError& error) {
      const bool is_damaged =
          error.kind() == core::ErrorKind::input || error.kind() == core::ErrorKind::io;
      if (resume != "auto" || !is_damaged) throw;
      log::warn(fmt::format("{} is passed over: {}", folder_name(found->step), error.what()));
      before_step = found->step;
    }
  }
}

}  // namespace finetune::checkpoint
