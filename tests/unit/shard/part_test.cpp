// SPDX-License-Identifier: Apache-2.0
// What ranks of the tensor-parallel axis hold of a model's parameters, and its way through a
// checkpoint to other numbers of ranks.
#include "model/part.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/load/find.hpp"
#include "checkpoint/load/load.hpp"
#include "checkpoint/save/save.hpp"
#include "model/layout.hpp"
#include "support/architecture.hpp"
#include "support/ranks.hpp"
#include "support/shared_folder.hpp"

namespace finetune::model::part_test {
namespace {

using core::Box;
using tests::world;

Architecture small(bool has_experts) {
  Architecture a = tests::architecture_of({1, 12, 6, 2, 2, 10, 21});
  a.qkv_bias = true;
  if (has_experts) {
    a.experts = {.num = 3, .top_k = 1, .d_ff = 6, .d_shared = 4};
    a.layers = {{.has_experts = true}};
  }
  return a;
}

/// Models with every kind of row: separate matrices, several of them in one tensor, numbers.
std::vector<ParameterTable> tables() {
  TensorNames names;
  names.embedding = "fused.embed_tokens";
  names.layers = "fused.layers.";
  names.final_norm = "fused.norm";
  names.head = "fused.head";
  names.qkv = "self_attn.qkv";
  names.fused_gate_up = "experts.gate_up";
  names.fused_down = "experts.down";
  names.shared_gate = "shared.gate";
  names.shared_up = "shared.up";
  names.shared_down = "shared.down";
  Architecture with_numbers = small(false);
  with_numbers.activation = {Activation::Function::xielu, false};
  return {lay_out(small(false)), lay_out(small(true), names),
          lay_out(with_numbers, TensorNames().below("numbers."))};
}

const Parameter& row(const std::vector<ParameterTable>& tables, const std::string& name) {
  for (const ParameterTable& table : tables) {
    const auto found = std::ranges::find(table.rows, name, &Parameter::name);
    if (found != table.rows.end()) return *found;
  }
  throw std::out_of_range(name);
}

Parameter held_row(const std::string& name, std::int64_t tp, std::int64_t i_tp) {
  std::vector<ParameterTable> own;
  for (const ParameterTable& table : tables())
    if (why_not(table, tp).empty()) own.push_back(part_of(table, {.tp = tp, .i_tp = i_tp}));
  return row(own, name);
}

std::vector<Box> held(const std::string& name, std::int64_t tp, std::int64_t i_tp) {
  return held_row(name, tp, i_tp).held->boxes;
}

TEST(PartOfATable, FollowsTheSplits) {
  const std::string block = "model.layers.0.";
  using Boxes = std::vector<Box>;
  EXPECT_EQ(held(block + "self_attn.q_proj.weight", 2, 1), (Boxes{{{6, 0}, {6, 12}}}));
  EXPECT_EQ(held(block + "self_attn.k_proj.bias", 2, 1), (Boxes{{{2}, {2}}}));
  EXPECT_EQ(held(block + "self_attn.o_proj.weight", 2, 1), (Boxes{{{0, 6}, {12, 6}}}));
  EXPECT_EQ(held(block + "mlp.up_proj.weight", 2, 0), (Boxes{{{0, 0}, {5, 12}}}));
  EXPECT_EQ(held(block + "mlp.down_proj.weight", 2, 0), (Boxes{{{0, 0}, {12, 5}}}));
  EXPECT_EQ(held(block + "input_layernorm.weight", 2, 1), (Boxes{{{0}, {12}}}));
  // A vocabulary that does not divide is cut as evenly as it can be.
  EXPECT_EQ(held("model.embed_tokens.weight", 2, 1), (Boxes{{{10, 0}, {11, 12}}}));
  EXPECT_EQ(held("lm_head.weight", 4, 3), (Boxes{{{15, 0}, {6, 12}}}));
}

TEST(PartOfATable, HasTheShapesOfItsParts) {
  using Shape = std::vector<std::int64_t>;
  EXPECT_EQ(held_row("model.layers.0.self_attn.o_proj.weight", 2, 1).shape, (Shape{12, 6}));
  EXPECT_EQ(held_row("fused.layers.0.self_attn.qkv.weight", 2, 0).shape, (Shape{10, 12}));
  EXPECT_EQ(held_row("fused.layers.0.experts.down", 2, 1).shape, (Shape{2, 6, 12}));
}

TEST(PartOfATable, NumbersAreHeldByAllRanks) {
  for (const char* name :
       {"numbers.model.layers.0.mlp.act_fn.alpha_p", "numbers.model.layers.0.mlp.act_fn.eps"}) {
    const Parameter own = held_row(name, 2, 1);
    EXPECT_EQ(own.shape, row(tables(), name).shape) << name;
    EXPECT_EQ(own.held->num_holders, 2) << name;
  }
}

TEST(PartOfATable, EachMatrixInOneTensorIsSplitByItself) {
  const std::string block = "fused.layers.0.";
  using Boxes = std::vector<Box>;
  // Queries, keys and values: 12, 4 and 4 rows.
  EXPECT_EQ(held(block + "self_attn.qkv.weight", 2, 1),
            (Boxes{{{6, 0}, {6, 12}}, {{14, 0}, {2, 12}}, {{18, 0}, {2, 12}}}));
  EXPECT_EQ(held(block + "self_attn.qkv.bias", 2, 0),
            (Boxes{{{0}, {6}}, {{12}, {2}}, {{16}, {2}}}));
  EXPECT_EQ(held(block + "mlp.gate.weight", 2, 1), (Boxes{{{0, 0}, {3, 12}}}));  // the router
}

TEST(PartOfATable, ExpertsInOneTensorAreSharedAsWholeExperts) {
  using Boxes = std::vector<Box>;
  EXPECT_EQ(held("fused.layers.0.experts.gate_up", 2, 0), (Boxes{{{0, 0, 0}, {1, 12, 12}}}));
  EXPECT_EQ(held("fused.layers.0.experts.down", 2, 1), (Boxes{{{1, 0, 0}, {2, 6, 12}}}));
}

TEST(PartOfATable, MoreRanksThanKeyHeadsHoldThemTogetherAndShareTheirQueries) {
  const std::string block = "model.layers.0.self_attn.";
  // Ranks 2 and 3 of 4 have the second of two heads of keys, with 3 heads of queries.
  for (const std::int64_t i : {2, 3}) {
    const Parameter keys = held_row(block + "k_proj.weight", 4, i);
    EXPECT_EQ(keys.held->boxes, (std::vector<Box>{{{2, 0}, {2, 12}}}));
    EXPECT_EQ(keys.held->num_holders, 2);
    EXPECT_EQ(keys.held->holder, i - 2);
  }
  EXPECT_EQ(held(block + "q_proj.weight", 4, 2), (std::vector<Box>{{{6, 0}, {2, 12}}}));
  EXPECT_EQ(held(block + "q_proj.weight", 4, 3), (std::vector<Box>{{{8, 0}, {4, 12}}}));
  EXPECT_EQ(held_row(block + "q_proj.weight", 4, 3).held->num_holders, 1);
  EXPECT_EQ(held_row("model.layers.0.input_layernorm.weight", 4, 3).held->num_holders, 4);
}

TEST(PartOfATable, OneRankTakesWhateverThereIs) {
  model::ParameterTable table = model::lay_out(small(false));
  for (model::Parameter& row : table.rows)
    row.packing.kind = model::Packing::Kind::nf4;  // of 12 inputs: blocks go over rows
  EXPECT_EQ(model::why_not(table, 1), "");
  EXPECT_NE(model::why_not(table, 2), "");
}

TEST(PartOfATable, WhatCannotBeSharedIsNamed) {
  EXPECT_EQ(why_not(tables()[0], 4), "");
  EXPECT_EQ(
      why_not(tables()[0], 7),
      "model.layers.0.self_attn.q_proj.weight can be cut into 6 parts at most, of 2 rows each");
  EXPECT_EQ(why_not(tables()[1], 2), "");
  EXPECT_NE(why_not(tables()[1], 4).find("self_attn.qkv"), std::string::npos);
}

TEST(PartOfATable, WhatIsPackedTogetherIsNamedWhereItWouldBeCut) {
  Architecture a = tests::architecture_of({1, 16, 4, 4, 4, 64, 21});
  a.qkv_bias = true;
  const auto why = [&](Packing::Kind kind, std::int64_t tp) {
    ParameterTable table = lay_out(a);
    for (Parameter& row : table.rows)
      if (row.name.ends_with("_proj.weight")) row.packing.kind = kind;
    return why_not(table, tp);
  };
  EXPECT_EQ(why(Packing::Kind::gptq, 2), "");
  EXPECT_EQ(why(Packing::Kind::gptq, 4),
            "model.layers.0.self_attn.q_proj.weight is packed in words of 8 numbers, some of which "
            "would be cut");
  // Rows of 16 inputs: four are a block, of which a part has 8 inputs each.
  EXPECT_EQ(why(Packing::Kind::nf4, 2),
            "model.layers.0.self_attn.o_proj.weight is packed in blocks of 64 numbers, some of "
            "which would be cut");
}

/// Slices in memory, and the values of the tensors, each of which differs from all others.
struct Memory {
  std::vector<core::TensorSlice> slices;
  std::vector<std::vector<float>> values;

  void add(const Parameter& parameter, std::int64_t first, std::int64_t count) {
    for (core::TensorSlice& slice : logical_slices(parameter, core::DType::f32, first, count)) {
      values.emplace_back(static_cast<std::size_t>(slice.count));
      if (!slice.box) slice.box = core::whole_box(slice.shape);
      slices.push_back(std::move(slice));
    }
  }

  /// Calls f(value in memory, value of the tensor) for each element.
  template <typename F>
  void for_each(F&& f) {
    for (std::size_t i = 0; i < slices.size(); ++i) {
      const auto first = static_cast<float>(std::hash<std::string>()(slices[i].name) % 10'000'000);
      std::vector<float> tensor(static_cast<std::size_t>(core::num_elements(slices[i].shape)));
      std::iota(tensor.begin(), tensor.end(), first);
      for (std::size_t k = 0; k < values[i].size(); ++k)
        f(values[i][k],
          tensor[element(slices[i], slices[i].offset + static_cast<std::int64_t>(k))]);
    }
  }

  static std::size_t element(const core::TensorSlice& slice, std::int64_t i) {
    std::int64_t result = 0, scale = 1;
    for (std::size_t d = slice.shape.size(); d-- > 0;) {
      result += (slice.box->begin[d] + i % slice.box->extent[d]) * scale;
      i /= slice.box->extent[d];
      scale *= slice.shape[d];
    }
    return static_cast<std::size_t>(result);
  }
};

/// What this rank holds where it plays ranks of a mesh of `tp` times `fsdp` in turn, each with a
/// run of each row. What several of `tp` hold is the first one's, or everybody's with replicas.
Memory play(std::int64_t tp, std::int64_t fsdp, bool with_replicas) {
  Memory memory;
  for (std::int64_t rank = world().rank(); rank < tp * fsdp; rank += world().size()) {
    const std::int64_t i_fsdp = rank / tp;
    for (const ParameterTable& table : tables()) {
      if (!why_not(table, tp).empty()) continue;
      for (const Parameter& parameter : part_of(table, {.tp = tp, .i_tp = rank % tp}).rows) {
        if (parameter.held && parameter.held->holder > 0 && !with_replicas) continue;
        const std::int64_t n = parameter.count(), first = n * i_fsdp / fsdp;
        memory.add(parameter, first, n * (i_fsdp + 1) / fsdp - first);
      }
    }
  }
  return memory;
}

TEST(PartOfATable, WhatTwoRanksSavedAnyOtherNumberLoads) {
  Memory saved = play(2, 1, false);
  saved.for_each([](float& in_memory, float of_tensor) { in_memory = of_tensor; });
  std::vector<checkpoint::StoredSlice> stored;
  for (std::size_t i = 0; i < saved.slices.size(); ++i)
    stored.push_back(
        {"master", saved.slices[i], reinterpret_cast<const std::byte*>(saved.values[i].data())});
  const tests::SharedFolder folder(world());
  checkpoint::save(world(), world(), 0, folder.path(), 1, core::Json::object(), stored,
                   {.block_bytes = 64});
  const auto found = checkpoint::find(world(), folder.path(), "auto");
  // Row-parallel weights too are one slice per rank.
  std::int64_t boxes = 0;
  for (const ParameterTable& table : tables())
    for (const Parameter& parameter : table.rows)
      boxes += parameter.split ? 2 * std::ssize(parameter.split->matrices)
                               : (parameter.of_experts ? 2 : 1);
  EXPECT_EQ(std::ssize(found->manifest.extents), boxes);

  const std::pair<std::int64_t, std::int64_t> meshes[] = {{1, 1}, {2, 1}, {4, 1},
                                                          {1, 3}, {2, 2}, {4, 3}};
  for (const auto& [tp, fsdp] : meshes) {
    Memory loaded = play(tp, fsdp, true);
    std::vector<checkpoint::WantedSlice> wanted;
    for (std::size_t i = 0; i < loaded.slices.size(); ++i)
      wanted.push_back(
          {"master", loaded.slices[i], reinterpret_cast<std::byte*>(loaded.values[i].data())});
    const auto report = checkpoint::load(world(), *found, wanted);
    std::int64_t wrong = 0;
    loaded.for_each([&](float in_memory, float of_tensor) { wrong += in_memory != of_tensor; });
    EXPECT_EQ(wrong, 0) << "tp " << tp << ", fsdp " << fsdp;
    // Four ranks cannot share a tensor of queries, keys and values with two heads of keys.
    if (tp < 4) {
      EXPECT_EQ(report.bytes_read, found->manifest.payload_bytes());
    }
  }
}

}  // namespace
}  // namespace finetune::model::part_test
