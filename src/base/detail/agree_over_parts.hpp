#pragma once
// SPDX-License-Identifier: Apache-2.0
// Agreement of all ranks that share a model's parts, over groups that cross each other.

#include "comm/agree.hpp"
#include "shard/model_shards.hpp"

namespace finetune::base {

/// Runs `f` and throws on every rank of a copy of the model if it throws on one of `ranks`, a group
/// of ranks with shards of the same parts: the ranks with the other parts would wait for them in
/// what follows. Collective on `ranks`, ep and tp. Throws: comm::AgreedError.
template <typename F>
void agree_over_parts(const shard::ModelShards& shards, const comm::Communicator& ranks,
                      const F& f) {
  const auto over = [](const auto& group, const auto& work) {
    if (group) return comm::agree_all(group->communicator(), work);
    work();
  };
  // Each rank of such a group is in one group of ep, and each of these in one of tp.
  over(shards.groups().tp, [&] { over(shards.groups().ep, [&] { comm::agree_all(ranks, f); }); });
}

}  // namespace finetune::base
