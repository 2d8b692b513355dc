#pragma once
// SPDX-License-Identifier: Apache-2.0
// Small models on the ranks of a test: one of files or of random numbers, in one expression.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "base/initial_weights.hpp"
#include "base/packed_files.hpp"
#include "model/adapter.hpp"
#include "model/family.hpp"
#include "model/model.hpp"
#include "model/products.hpp"
#include "plan/layout/bucket.hpp"
#include "shard/parallel_ops.hpp"
#include "support/mesh.hpp"
#include "support/ranks.hpp"
#include "support/shards.hpp"
#include "train/step/passes.hpp"

namespace finetune::tests {

/// With the adapter of `settings`, if it is one of `adapters`.
inline model::ParameterTable adapted(model::ParameterTable table,
                                     const model::AdapterSettings& settings,
                                     const std::vector<model::Adapter>& adapters) {
  for (const model::Adapter& adapter : adapters)
    if (adapter.name == settings.name) model::put_on(adapter, settings, "test", table);
  return table;
}

/// A table's rows with a model of them, and the ops that compute it. Collective on the groups.
struct SplitModel : ShardedTable {
  SplitModel(model::Architecture its, const model::ModelFamily& family, model::ParameterTable rows,
             const shard::Groups& groups, const shard::Options& options,
             model::Path path = model::Path::kernels,
             model::Recompute recompute = model::Recompute::nothing, std::int64_t block = 1)
      : ShardedTable(std::move(rows), groups, options, block),
        architecture(std::move(its)),
        model(family.build(architecture)),
        own_ops(shard::make_ops(shards, path, recompute)),
        ops(*own_ops) {}

  train::Engine engine() { return {architecture, *model, ops, shards}; }

  model::Architecture architecture;
  model::ModelPtr model;
  std::unique_ptr<model::Ops> own_ops;
  model::Ops& ops;
};

/// The rows of a table with the weights of files, computed with in bf16. Collective on `all`.
struct LoadedModel : ShardedTable {
  LoadedModel(const model::Architecture& architecture, model::ParameterTable rows,
              const Parts& parts, const comm::Communicator& all, const weights::ModelFiles& files)
      : ShardedTable(std::move(rows), shard::make_groups(mesh_of(all, 0, parts), true),
                     computing_in(core::DType::bf16)) {
    base::require_same_model(files, architecture, whole);
    base::load_weights(base::files_source(files, whole), shards);
  }
};

/// Whether the ranks of this program can share a model out in this way, in one copy.
inline bool can_share(const Parts& parts) {
  return can_have(world().size(), 0, {.tp = parts.tp * parts.ep});
}

/// What a rank has of a tensor, of the shape of its `row`.
inline at::Tensor own_part(const model::Parameter& row, const at::Tensor& whole) {
  const at::Tensor part = at::empty(row.shape, whole.options());
  std::int64_t to = 0;
  model::for_each_run(row, 0, row.count(), [&](std::int64_t first, std::int64_t count) {
    part.view({-1}).narrow(0, to, count).copy_(whole.reshape({-1}).narrow(0, first, count));
    to += count;
  });
  return part;
}
inline at::Tensor own_part(const model::Parameter& row, const std::vector<float>& whole) {
  return own_part(row, at::tensor(whole));
}

/// That the gradients of a model of one rank are the slopes of `loss()` over every `stride`th
/// element of its shards, by central differences. Returns the largest slope.
template <typename Loss>
double expect_slopes(ShardedTable& of, std::int64_t stride, const Loss& loss) {
  constexpr float step = 1e-2f;
  double largest = 0;
  for (int unit = 0; unit < of.shards.num_units(); ++unit) {
    of.shards.finish_gradients();
    const at::Tensor gradient = of.shards.gradient(unit).clone();
    float* master = of.shards.master(unit).data_ptr<float>();
    for (std::int64_t i = 0; i < gradient.numel(); i += stride) {
      const float before = master[i];
      const auto loss_at = [&](float value) {
        master[i] = value;
        of.shards.publish(unit);
        return loss();
      };
      const double slope = (loss_at(before + step) - loss_at(before - step)) / (2 * step);
      master[i] = before;
      of.shards.publish(unit);
      largest = std::max(largest, std::abs(slope));
      EXPECT_NEAR(gradient[i].item<float>(), slope, 5e-3 * std::max(1.0, std::abs(slope)))
          << of.map.unit(unit).name << ", element " << i;
    }
  }
  return largest;
}

}  // namespace finetune::tests
