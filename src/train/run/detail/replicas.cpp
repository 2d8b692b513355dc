// SPDX-License-Identifier: Apache-2.0
#include "train/run/detail/replicas.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>

#include "comm/agree.hpp"
#include "core/hash.hpp"

namespace finetune::train {
namespace {

std::string hash_of(const at::Tensor& shard) {
  const at::Tensor host = shard.cpu();
  return core::fingerprint(
      std::as_bytes(std::span(static_cast<const char*>(host.const_data_ptr()), host.nbytes())));
}

}  // namespace

void require_equal_replicas(const shard::ModelShards& shards, const optim::Optimizer& optimizer,
                            const world::World& world, std::int64_t step) {
  const comm::Communicator& copies = world.dp_replicate;
  comm::agree_all(world.world, [&] {
    for (const int unit : shards.trained_units()) {
      std::string hash = hash_of(shards.master(unit));
      for (const optim::StateTensor& kept : optimizer.kept(unit))
        hash += hash_of(kept.values);
      const auto hashes = copies.all_gather_text(hash);
      const auto other = std::find_if(hashes.begin(), hashes.end(),
                                      [&](const auto& h) { return h != hashes.front(); });
      if (other == hashes.end()) continue;
      core::fail(
          core::ErrorKind::numbers,
          {fmt::format("step {}", step),
           fmt::format(
               "copy {} of the model has other weights or moments than copy 0 in unit \"{}\"",
               other - hashes.begin(), shards.map().units()[static_cast<std::size_t>(unit)].name),
           "replicated state is the same on every rank, bit for bit",
           "Start again from the last checkpoint; if it happens again, look at the memory "
           "of the nodes that differ."});
    }
  });
}

}  // namespace finetune::train
