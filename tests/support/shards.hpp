#pragma once
// SPDX-License-Identifier: Apache-2.0
// A small table of odd sizes, split over ranks, for the tests of what works on shards.

#include <ATen/ATen.h>

#include <functional>
#include <vector>

#include "model/parameter_table.hpp"
#include "plan/layout/shard_map.hpp"
#include "shard/model_shards.hpp"

namespace finetune::tests {

/// Units of 20 elements (three matrices to read as one, and a norm that is not decayed), of 7 and
/// of 1: they divide by few numbers of ranks, and four ranks have more shards than the last one has
/// elements.
inline model::ParameterTable odd_table() {
  return {.rows = {{.name = "q", .shape = {3, 3}, .unit = 0},
                   {.name = "k", .shape = {1, 3}, .unit = 0},
                   {.name = "v", .shape = {1, 3}, .unit = 0},
                   {.name = "norm", .shape = {5}, .unit = 0, .decayed = false},
                   {.name = "seven", .shape = {7, 1}, .unit = 1},
                   {.name = "one", .shape = {1}, .unit = 2, .decayed = false}},
          .units = {"block", "seven", "one"}};
}

/// Element `i` of row `row`: no two are equal, and few fit into bfloat16.
inline float element_of(int row, std::int64_t i) {
  return 1.0f + 0.1f * static_cast<float>(row) + 0.00317f * static_cast<float>(i);
}

/// Table, map and shards together: the shards refer to the other two. Collective on `fsdp`.
struct OddShards {
  OddShards(const comm::Communicator& fsdp, at::ScalarType dtype,
            model::ParameterTable rows = odd_table(), std::int64_t block = 1)
      : table(std::move(rows)),
        map(table, fsdp.size(), {.compute = options(dtype).numbers.compute, .block = block}),
        shards(table, map, shard::one_copy(fsdp), options(dtype)) {
    for_each([](int row, std::int64_t i, float& master) { master = element_of(row, i); });
    shards.publish_all();
    // Sums of nothing: an optimizer's tests write to them.
    for (int unit = 0; unit < shards.num_units(); ++unit) {
      shards.open_gradient(unit);
      shards.reduce_gradient(unit);
    }
    shards.finish_gradients();
    shards.reset_gradients();
  }
  static shard::Options options(at::ScalarType dtype) {
    shard::Options options;
    options.numbers.compute = dtype == at::kFloat ? core::DType::f32 : core::DType::bf16;
    return options;
  }
  OddShards(const OddShards&) = delete;
  OddShards& operator=(const OddShards&) = delete;

  /// Calls f(row, element of the row, value) for this rank's elements of the tensors that
  /// `of_unit` gives, its master weights by default.
  template <typename F>
  void for_each(const F& f, const std::function<at::Tensor(int)>& of_unit) {
    for (const int unit : shards.trained_units()) {
      float* values = of_unit(unit).template data_ptr<float>();
      for (const plan::ShardSlice& slice : map.slices(unit, shards.fsdp().rank())) {
        for (std::int64_t i = 0; i < slice.count; ++i)
          f(slice.row, slice.tensor_offset + i, values[slice.shard_offset + i]);
      }
    }
  }
  template <typename F>
  void for_each(const F& f) {
    for_each(f, [this](int unit) { return shards.master(unit); });
  }
  template <typename F>
  void for_each_gradient(const F& f) {
    shards.finish_gradients();
    for_each(f, [this](int unit) { return shards.gradient(unit); });
  }

  model::ParameterTable table;
  plan::ShardMap map;
  shard::ModelShards shards;
};

}  // namespace finetune::tests
