// SPDX-License-Identifier: Apache-2.0
#include "shard/parallel_ops.hpp"

#include "shard/detail/tensor_parallel.hpp"

namespace finetune::shard {

namespace {

std::unique_ptr<model::Ops> ops_of_groups(ModelShards& shards, model::Path path,
                                          model::Recompute recompute) {
  const Groups& groups = shards.groups();
  const SharedWith with{.cp = groups.cp.get(),
                        .method = shards.options().context,
                        .ep = groups.ep.get(),
                        .place = groups.part_place()};
  if (groups.tp)
    return std::make_unique<TensorParallelOps>(shards, shards.table(), *groups.tp, path, recompute,
                                               with);
  if (groups.ep) return std::make_unique<ExpertParallelOps>(shards, with, path, recompute);
  if (groups.cp)
    return std::make_unique<ContextParallelOps>(shards, with.cp, with.method, path, recompute);
  return std::make_unique<model::Ops>(shards, path, recompute);
}

}  // namespace

std::unique_ptr<model::Ops> make_ops(ModelShards& shards, model::Path path,
                                     model::Recompute recompute) {
  auto ops = ops_of_groups(shards, path, recompute);
  ops->set_outputs(shards.table().outputs);
  return ops;
}

}  // namespace finetune::shard
