#pragma once
// SPDX-License-Identifier: Apache-2.0
// A model of files on a mesh, for tests of what ranks keep of its packed matrices.

#include <algorithm>
#include <utility>
#include <vector>

#include "base/detail/base_weights.hpp"
#include "base/initial_weights.hpp"
#include "base/packed_files.hpp"
#include "model/part.hpp"
#include "support/mesh.hpp"

namespace finetune::tests {

/// What a rank has of a matrix's fp32 values `whole`: of the shape of its `row`.
inline at::Tensor own_part(const model::Parameter& row, const std::vector<float>& whole) {
  at::Tensor part = at::empty(row.shape, at::kFloat);
  float* to = part.data_ptr<float>();
  model::for_each_run(row, 0, row.count(), [&](std::int64_t first, std::int64_t count) {
    std::copy_n(whole.begin() + first, count, to);
    to += count;
  });
  return part;
}

/// Computes in bf16. Collective on `all`.
struct LoadedModel {
  LoadedModel(const model::Architecture& architecture, model::ParameterTable table,
              const Parts& parts, const comm::Communicator& all, const weights::ModelFiles& files)
      : mesh(mesh_of(all, 0, parts)),
        groups(shard::make_groups(mesh, true)),
        whole(std::move(table)),
        own(model::part_of(whole, groups.part_place())),
        map(own, mesh.fsdp.size(), {.compute = core::DType::bf16, .ep = parts.ep}),
        shards(own, map, groups, options()) {
    base::require_same_model(files, architecture, whole);
    base::load_weights(base::files_source(files, whole), shards);
  }
  static shard::Options options() {
    shard::Options options;
    options.numbers.compute = core::DType::bf16;
    return options;
  }

  world::World mesh;
  shard::Groups groups;
  model::ParameterTable whole, own;
  plan::ShardMap map;
  shard::ModelShards shards;
};

}  // namespace finetune::tests
