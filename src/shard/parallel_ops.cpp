// SPDX-License-Identifier: Apache-2.0
#include "shard/parallel_ops.hpp"

#include "shard/detail/context_parallel.hpp"
#include "shard/detail/tensor_parallel.hpp"

namespace finetune::shard {

std::unique_ptr<model::Ops> make_ops(ModelShards& shards, model::Path path,
                                     model::Recompute recompute) {
  const Groups& groups = shards.groups();
  if (groups.tp)
    return std::make_unique<TensorParallelOps>(shards, shards.table(), *groups.tp, path, recompute);
  if (groups.cp)
    return std::make_unique<ContextParallelOps>(shards, groups.cp.get(), shards.options().context,
                                                path, recompute);
  return std::make_unique<model::Ops>(shards, path, recompute);
}

}  // namespace finetune::shard
