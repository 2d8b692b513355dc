// SPDX-License-Identifier: Apache-2.0
#include "train/initial_weights.hpp"

#include <algorithm>
#include <vector>

#include "core/random.hpp"
#include "weights/expected.hpp"

namespace finetune::train {
namespace {

/// Calls `fill(slice, first element)` for every run of parameters among this rank's shards, in
/// fp32.
template <typename Fill>
void for_each_slice(shard::ModelShards& shards, const Fill& fill) {
  for (int unit = 0; unit < shards.num_units(); ++unit) {
    at::Tensor master = shards.master(unit);
    const bool is_direct = master.is_cpu() && master.scalar_type() == at::kFloat;
    const at::Tensor values = is_direct ? master : at::zeros({master.numel()}, at::kFloat);
    for (const plan::ShardSlice& slice : shards.map().slices(unit, shards.fsdp().rank()))
      fill(slice, values.data_ptr<float>() + slice.shard_offset);
    if (!is_direct) master.copy_(values);
  }
}

std::vector<weights::ExpectedTensor> expected_tensors(const model::Architecture& architecture,
                                                      const model::ParameterTable& table) {
  std::vector<weights::ExpectedTensor> expected;
  for (const model::Parameter& row : table.rows) {
    expected.push_back({.name = row.name, .shape = row.shape, .optional = false});
  }
  if (architecture.tied_embeddings) {
    // Some files carry the tied head a second time; the embedding's copy is the one that counts.
    expected.push_back(
        {.name = "lm_head.weight", .shape = table.rows.front().shape, .optional = true});
  }
  return expected;
}

}  // namespace

core::TensorSlice tensor_slice(const model::Parameter& parameter, const plan::ShardSlice& slice) {
  return {.name = parameter.name,
          .shape = parameter.shape,
          .dtype = core::DType::f32,
          .offset = slice.tensor_offset,
          .count = slice.count};
}

void import_weights(const weights::ModelFiles& files, const model::Architecture& architecture,
                    const model::ParameterTable& table, shard::ModelShards& shards) {
  weights::check(files, expected_tensors(architecture, table),
                 (files.folder() / "config.json").string(), table.foreign);
  for_each_slice(shards, [&](const plan::ShardSlice& slice, float* first) {
    const core::TensorSlice wanted =
        tensor_slice(table.rows[static_cast<std::size_t>(slice.row)], slice);
    files.read(wanted,
               std::as_writable_bytes(std::span(first, static_cast<std::size_t>(slice.count))));
  });
  shards.publish_all();
}

void randomize(const model::Architecture& architecture, const model::ParameterTable& table,
               std::uint64_t seed, shard::ModelShards& shards) {
  for_each_slice(shards, [&](const plan::ShardSlice& slice, float* first) {
    const model::Init init = table.rows[static_cast<std::size_t>(slice.row)].init;
    if (init != model::Init::normal) {
      std::fill_n(first, slice.count, init == model::Init::ones ? 1.0f : 0.0f);
      return;
    }
    const core::RandomKey key(seed, core::RandomUse::weights,
                              static_cast<std::uint64_t>(slice.row));
    for (std::int64_t i = 0; i < slice.count; ++i) {
      const double normal = key.normal(static_cast<std::uint64_t>(slice.tensor_offset + i));
      first[i] = static_cast<float>(normal * architecture.init_std);
    }
  });
  shards.publish_all();
}

}  // namespace finetune::train
