// SPDX-License-Identifier: Apache-2.0
#include "shard/options.hpp"

#include <fmt/format.h>

#include <string>

#include "comm/agree.hpp"
#include "comm/group_factory.hpp"
#include "comm/mpi/mpi_group.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "shard/compute_stream.hpp"

namespace finetune::shard {

namespace {

/// One warning for all ranks and groups. Collective on `world`.
void warn_of_one_level(const comm::Communicator& world,
                       std::initializer_list<const comm::MpiGroup*> groups) {
  std::string why;
  for (const comm::MpiGroup* group : groups)
    if (why.empty()) why = group->why_one_level();
  const std::int64_t first =
      world.all_reduce(std::int64_t{why.empty() ? world.size() : world.rank()}, comm::Reduce::min);
  if (first == world.size()) return;
  log::warn(fmt::format(
      "rank {}: its node's ranks cannot share memory ({}), so every rank gets messages of its own "
      "from other nodes, which takes longer. Make /dev/shm larger, for a container by --shm-size.",
      first, world.broadcast_text(why, static_cast<int>(first))));
}

std::shared_ptr<comm::Group> one_rank(const comm::Communicator& comm) {
  return std::make_shared<comm::MpiGroup>(
      comm, std::make_shared<comm::Worker>(comm::Worker::Where::inline_));
}

}  // namespace

Groups make_groups(const world::World& world, bool overlap, plan::Alone alone) {
  const bool communicates = alone == plan::Alone::communicates;
  if (world.device.index >= 0) {
    const bool is_needed = communicates || world.batch.size() > 1;
    const auto stream = comm::agree(world.world, [&]() -> std::shared_ptr<comm::DeviceStream> {
      return is_needed ? std::make_shared<comm::DeviceStream>(compute_stream) : nullptr;
    });
    const auto group = [&](const comm::Communicator& comm) -> std::shared_ptr<comm::Group> {
      // Nothing is ever started on it.
      if (comm.size() == 1 && !communicates) return one_rank(comm);
      return comm::make_nccl_group(comm, stream);
    };
    // All ranks of a communicator fail together; those of the others have to hear of it.
    const auto fsdp = comm::agree(world.world, [&] { return group(world.fsdp); });
    const auto dp_replicate = comm::agree(world.world, [&] { return group(world.dp_replicate); });
    return {.fsdp = fsdp, .dp_replicate = dp_replicate, .alone = alone};
  }
  const bool is_behind = overlap && (world.batch.size() > 1 || communicates);
  const auto worker = std::make_shared<comm::Worker>(is_behind ? comm::Worker::Where::behind
                                                               : comm::Worker::Where::inline_);
  const auto fsdp = std::make_shared<comm::MpiGroup>(world.fsdp, worker);
  const auto dp_replicate = std::make_shared<comm::MpiGroup>(world.dp_replicate, worker);
  warn_of_one_level(world.world, {fsdp.get(), dp_replicate.get()});
  return {.fsdp = fsdp, .dp_replicate = dp_replicate, .alone = alone};
}

Groups one_copy(const comm::Communicator& fsdp) {
  const auto worker = std::make_shared<comm::Worker>(
      fsdp.size() > 1 ? comm::Worker::Where::behind : comm::Worker::Where::inline_);
  return {.fsdp = std::make_shared<comm::MpiGroup>(fsdp, worker),
          .dp_replicate = std::make_shared<comm::MpiGroup>(comm::Communicator(), worker)};
}

at::ScalarType to_aten(core::DType dtype) {
  switch (dtype) {
    case core::DType::f32:
      return at::kFloat;
    case core::DType::bf16:
      return at::kBFloat16;
    case core::DType::f16:
      return at::kHalf;
    case core::DType::i64:
      return at::kLong;
    case core::DType::i32:
      return at::kInt;
    case core::DType::u8:
      return at::kByte;
    default:
      core::check(false, "weights are f32, bf16, f16 or packed");
      return at::kFloat;
  }
}

}  // namespace finetune::shard
