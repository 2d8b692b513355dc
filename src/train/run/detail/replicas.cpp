// SPDX-License-Identifier: Apache-2.0
#include "train/run/detail/replicas.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <span>
#include <sstream>
#include <string>
#include <utility>

#include "comm/agree.hpp"
#include "core/hash.hpp"
#include "model/part.hpp"

namespace finetune::train {
namespace {

std::string hash_of(const at::Tensor& shard) {
  const at::Tensor host = shard.cpu();
  return core::fingerprint(
      std::as_bytes(std::span(static_cast<const char*>(host.const_data_ptr()), host.nbytes())));
}

/// What is not equal of what several ranks of tp hold of a unit: the master weights, row by row.
/// Collective on tp.
std::string unequal_parts(const shard::ModelShards& shards, int unit, std::int64_t step) {
  const auto& tp = shards.groups().tp;
  if (!tp) return "";
  // Ranks with the same elements, of however many rows, tell each other of them by what they are.
  std::map<std::string, std::string> own;
  const at::Tensor master = shards.master(unit);
  for (const plan::ShardSlice& slice : shards.map().slices(unit, shards.shard_of(unit))) {
    const model::Parameter& row = shards.table().row(slice.row);
    if (!row.held || row.held->num_holders == 1) continue;
    const auto slices =
        model::logical_slices(row, core::DType::f32, slice.tensor_offset, slice.count);
    const core::Box box = slices.front().box_or_whole();
    own[fmt::format("{} {} {} {}", row.name, fmt::join(box.begin, ","), slice.tensor_offset,
                    slice.count)] = hash_of(master.narrow(0, slice.shard_offset, slice.count));
  }
  std::string told;
  for (const auto& [name, hash] : own)
    told += name + " " + hash + "\n";
  std::map<std::string, std::pair<std::string, int>> first;
  const auto all = tp->communicator().all_gather_text(told);
  for (int rank = 0; rank < std::ssize(all); ++rank) {
    std::istringstream lines(all[static_cast<std::size_t>(rank)]);
    std::string name, box, offset, count, hash;
    while (lines >> name >> box >> offset >> count >> hash) {
      const auto [there, is_new] =
          first.try_emplace(name + " " + box + " " + offset + " " + count, hash, rank);
      if (is_new || there->second.first == hash) continue;
      return core::to_string(
          {fmt::format("step {}", step),
           fmt::format("ranks {} and {} of tp have different weights of {}", there->second.second,
                       rank, name),
           "what both hold is the same on each, bit for bit",
           "Start again from the last checkpoint; if it happens again, look at the memory "
           "of the nodes of these ranks."});
    }
  }
  return "";
}

/// What is not equal of the copies of a unit. Collective on `copies`.
std::string unequal_copies(const shard::ModelShards& shards, const optim::Optimizer& optimizer,
                           const comm::Communicator& copies, int unit, std::int64_t step) {
  std::string hash = hash_of(shards.master(unit));
  for (const optim::StateTensor& kept : optimizer.kept(unit))
    hash += hash_of(kept.values);
  const auto hashes = copies.all_gather_text(hash);
  const auto other = std::find_if(hashes.begin(), hashes.end(),
                                  [&](const auto& h) { return h != hashes.front(); });
  if (other == hashes.end()) return "";
  return core::to_string(
      {fmt::format("step {}", step),
       fmt::format("copy {} of the model has other weights or moments than copy 0 in unit \"{}\"",
                   other - hashes.begin(), shards.map().unit(unit).name),
       "replicated state is the same on every rank, bit for bit",
       "Start again from the last checkpoint; if it happens again, look at the memory of the nodes "
       "that differ."});
}

}  // namespace

void require_equal_replicas(const shard::ModelShards& shards, const optim::Optimizer& optimizer,
                            const world::World& world, std::int64_t step) {
  comm::agree_all(world.world, [&] {
    // Groups of copies and of tp cross each other: who knows of a difference goes on with the
    // others.
    std::string problem;
    for (const int unit : shards.trained_units()) {
      for (std::string text : {unequal_copies(shards, optimizer, world.dp_replicate, unit, step),
                               unequal_parts(shards, unit, step)})
        if (problem.empty()) problem = std::move(text);
    }
    if (!problem.empty()) throw core::Error(core::ErrorKind::numbers, problem);
  });
}

}  // namespace finetune::train
