#pragma once
// SPDX-License-Identifier: Apache-2.0
// The rows of a table on the ranks that share them, element by element.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "model/fp8.hpp"
#include "model/part.hpp"
#include "plan/layout/shard_map.hpp"
#include "shard/model_shards.hpp"

namespace finetune::tests {

/// Numbers by row and element of the logical row.
using Elements = std::map<std::pair<int, std::int64_t>, float>;

inline shard::Options computing_in(core::DType compute) {
  shard::Options options;
  options.numbers.compute = compute;
  return options;
}

/// What a rank holds of `rows`, their map and its shards, which refer to each other. Collective on
/// the groups.
struct ShardedTable {
  ShardedTable(model::ParameterTable rows, const shard::Groups& groups,
               const shard::Options& options, std::int64_t block = 1)
      : whole(std::move(rows)),
        table(part_of(whole, groups.part_place())),
        map(table, groups.fsdp->size(),
            {.compute = options.numbers.compute, .block = block, .ep = groups.part_place().ep}),
        shards(table, map, groups, options) {}
  ShardedTable(const ShardedTable&) = delete;
  ShardedTable& operator=(const ShardedTable&) = delete;

  /// Calls f(row, element of the logical row, value) for this rank's trained elements of the
  /// tensors that `of_unit` gives, its master weights by default. f may change the value.
  template <typename F, typename OfUnit>
  void for_each(const F& f, const OfUnit& of_unit) const {
    for (const int unit : shards.trained_units()) {
      const at::Tensor tensor = of_unit(unit), values = tensor.to(at::kFloat);
      for (const plan::ShardSlice& slice : map.slices(unit, shards.shard_of(unit))) {
        float* value = values.data_ptr<float>() + slice.shard_offset;
        model::for_each_run(table.row(slice.row), slice.tensor_offset, slice.count,
                            [&](std::int64_t first, std::int64_t count) {
                              for (std::int64_t i = first; i < first + count; ++i)
                                f(slice.row, i, *value++);
                            });
      }
      if (!values.is_same(tensor)) tensor.copy_(values);
    }
  }
  template <typename F>
  void for_each(const F& f) const {
    for_each(f, [this](int unit) { return shards.master(unit); });
  }
  template <typename F>
  void for_each_gradient(const F& f) {
    shards.finish_gradients();
    for_each(f, [this](int unit) { return shards.gradient(unit); });
  }

  /// This rank's.
  template <typename OfUnit>
  Elements elements(const OfUnit& of_unit) const {
    Elements all;
    for_each([&](int row, std::int64_t i, float value) { all[{row, i}] = value; }, of_unit);
    return all;
  }
  Elements elements() const {
    return elements([this](int unit) { return shards.master(unit); });
  }
  Elements gradients() {
    shards.finish_gradients();
    return elements([this](int unit) { return shards.gradient(unit); });
  }

  model::ParameterTable whole;
  model::ParameterTable table;  ///< of this rank's part
  plan::ShardMap map;
  shard::ModelShards shards;

 private:
  static model::ParameterTable part_of(const model::ParameterTable& whole,
                                       const model::PartPlace& place) {
    model::ParameterTable own = model::part_of(whole, place);
    if (!place.is_whole()) model::settle_published(own);
    return own;
  }
};

/// That a rank's elements have the bits of `all`.
inline void expect_elements_of(const Elements& all, const Elements& own,
                               const std::string& what = "") {
  for (const auto& [element, value] : own)
    EXPECT_EQ(std::bit_cast<std::uint32_t>(value), std::bit_cast<std::uint32_t>(all.at(element)))
        << value << ", not " << all.at(element) << what << " row " << element.first << ", element "
        << element.second;
}

/// That nothing of a shard of `unit` is in `values` behind the last element.
inline void expect_zero_padding(const ShardedTable& of, int unit, const at::Tensor& values) {
  const plan::UnitLayout& layout = of.map.unit(unit);
  const std::int64_t begin = of.shards.shard_of(unit) * layout.shard_size;
  const std::int64_t used = std::clamp<std::int64_t>(layout.count - begin, 0, layout.shard_size);
  const at::Tensor padding = values.narrow(0, used, layout.shard_size - used);
  EXPECT_EQ(padding.count_nonzero().item<std::int64_t>(), 0) << layout.name;
}

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

/// A small table of such elements over all ranks of `fsdp`, whose sums of gradients are open to an
/// optimizer's tests. Collective on `fsdp`.
struct OddShards : ShardedTable {
  OddShards(const comm::Communicator& fsdp, at::ScalarType dtype,
            model::ParameterTable rows = odd_table(), std::int64_t block = 1)
      : OddShards(fsdp, computing_in(dtype == at::kFloat ? core::DType::f32 : core::DType::bf16),
                  std::move(rows), block) {}
  OddShards(const comm::Communicator& fsdp, const shard::Options& options,
            model::ParameterTable rows = odd_table(), std::int64_t block = 1)
      : ShardedTable(std::move(rows), shard::one_copy(fsdp), options, block) {
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
};

}  // namespace finetune::tests
