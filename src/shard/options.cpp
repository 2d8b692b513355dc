// SPDX-License-Identifier: Apache-2.0
#include "shard/options.hpp"

#include <fmt/format.h>

#include <string>
#include <vector>

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
                       const std::vector<const comm::MpiGroup*>& groups) {
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

namespace {

/// Over NCCL. Units are gathered and reduced on one stream: both would take the same links. Sums
/// over copies of the model, which take others where shards stay on nodes, have a second one, and
/// activations a third.
Groups device_groups(const world::World& world, plan::Alone alone) {
  const bool communicates = alone == plan::Alone::communicates;
  const auto make_stream = [&](bool is_needed) {
    return comm::agree(world.world, [&]() -> std::shared_ptr<comm::DeviceStream> {
      return is_needed ? std::make_shared<comm::DeviceStream>(compute_stream) : nullptr;
    });
  };
  const auto of_units = make_stream(communicates || world.fsdp.size() > 1);
  const auto of_copies = make_stream(communicates || world.dp_replicate.size() > 1);
  const bool shares = world.tp.size() > 1 || world.cp.size() > 1 || world.ep.size() > 1;
  const auto of_activations = shares ? make_stream(true) : nullptr;
  // All ranks of a communicator fail together; those of the others have to hear of it.
  const auto group = [&](const comm::Communicator& comm, const auto& stream, bool is_used) {
    return comm::agree(world.world, [&]() -> std::shared_ptr<comm::Group> {
      // Nothing is ever started on it.
      if (!is_used) return one_rank(comm);
      return comm::make_nccl_group(comm, stream);
    });
  };
  const auto unit_group = [&](const comm::Communicator& comm, const auto& stream) {
    return group(comm, stream, comm.size() > 1 || communicates);
  };
  const auto activation_group =
      [&](const comm::Communicator& comm) -> std::shared_ptr<comm::Group> {
    return comm.size() > 1 ? group(comm, of_activations, true) : nullptr;
  };
  Groups groups{.fsdp = unit_group(world.fsdp, of_units),
                .dp_replicate = unit_group(world.dp_replicate, of_copies)};
  groups.tp = activation_group(world.tp);
  groups.cp = activation_group(world.cp);
  groups.ep = activation_group(world.ep);
  if (groups.ep) groups.expert_fsdp = unit_group(world.expert_fsdp, of_units);
  groups.alone = alone;
  return groups;
}

}  // namespace

Groups make_groups(const world::World& world, bool overlap, plan::Alone alone) {
  if (world.device.index >= 0) return device_groups(world, alone);
  const auto make_worker = [&](bool is_behind) {
    return std::make_shared<comm::Worker>(is_behind ? comm::Worker::Where::behind
                                                    : comm::Worker::Where::inline_);
  };
  const bool communicates = alone == plan::Alone::communicates;
  const auto of_units = make_worker(
      overlap && (world.fsdp.size() > 1 || world.dp_replicate.size() > 1 || communicates));
  const auto fsdp = std::make_shared<comm::MpiGroup>(world.fsdp, of_units);
  const auto dp_replicate = std::make_shared<comm::MpiGroup>(world.dp_replicate, of_units);
  Groups groups{.fsdp = fsdp, .dp_replicate = dp_replicate};
  std::vector<const comm::MpiGroup*> all = {fsdp.get(), dp_replicate.get()};
  const auto of_activations =
      make_worker(overlap && (world.tp.size() > 1 || world.cp.size() > 1 || world.ep.size() > 1));
  const auto group = [&](const comm::Communicator& comm,
                         const auto& worker) -> std::shared_ptr<comm::Group> {
    if (comm.size() == 1) return nullptr;
    const auto made = std::make_shared<comm::MpiGroup>(comm, worker);
    all.push_back(made.get());
    return made;
  };
  groups.tp = group(world.tp, of_activations);
  groups.cp = group(world.cp, of_activations);
  groups.ep = group(world.ep, of_activations);
  if (groups.ep) {
    const auto of_experts = std::make_shared<comm::MpiGroup>(world.expert_fsdp, of_units);
    all.push_back(of_experts.get());
    groups.expert_fsdp = of_experts;
  }
  warn_of_one_level(world.world, all);
  groups.alone = alone;
  return groups;
}

std::vector<Groups::Named> Groups::all() const {
  std::vector<Named> named = {{plan::groups::fsdp.name, fsdp.get()},
                              {plan::groups::dp_replicate.name, dp_replicate.get()}};
  if (tp) named.push_back({plan::groups::tp.name, tp.get()});
  if (cp) named.push_back({plan::groups::cp.name, cp.get()});
  if (ep) named.push_back({plan::groups::ep_name, ep.get()});
  if (expert_fsdp) named.push_back({plan::groups::expert_fsdp_name, expert_fsdp.get()});
  return named;
}

model::PartPlace Groups::part_place() const {
  model::PartPlace place;
  if (tp) place = {.tp = tp->size(), .i_tp = tp->rank()};
  if (ep) place.ep = ep->size(), place.i_ep = ep->rank();
  return place;
}

Groups one_copy(const comm::Communicator& fsdp, const comm::Communicator& tp) {
  const auto worker = std::make_shared<comm::Worker>(fsdp.size() > 1 || tp.size() > 1
                                                         ? comm::Worker::Where::behind
                                                         : comm::Worker::Where::inline_);
  Groups groups{.fsdp = std::make_shared<comm::MpiGroup>(fsdp, worker),
                .dp_replicate = std::make_shared<comm::MpiGroup>(comm::Communicator(), worker)};
  if (tp.size() > 1) groups.tp = std::make_shared<comm::MpiGroup>(tp, worker);
  return groups;
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
