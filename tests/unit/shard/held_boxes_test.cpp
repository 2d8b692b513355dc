// SPDX-License-Identifier: Apache-2.0
// What ranks of the tensor-parallel axis hold of a model's parameters, and its way through a
// checkpoint to other numbers of ranks.
#include "shard/detail/held_boxes.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "checkpoint/load/find.hpp"
#include "checkpoint/load/load.hpp"
#include "checkpoint/save/save.hpp"
#include "model/layout.hpp"
#include "support/folders.hpp"
#include "support/ranks.hpp"

namespace finetune::shard::held_boxes_test {
namespace {

using core::Box;
using model::Parameter;
using tests::world;

model::Architecture small(bool has_experts) {
  model::Architecture a;
  a.num_layers = 1;
  a.vocab_size = 21;
  a.d_model = 12;
  a.num_heads = 6;
  a.num_kv_heads = 2;
  a.head_size = 2;
  a.d_ff = 10;
  a.qkv_bias = true;
  if (has_experts) {
    a.experts = {.num = 3, .top_k = 1, .d_ff = 6, .d_shared = 4};
    a.layers = {{.has_experts = true}};
  }
  return a;
}

/// Two models with every kind of row: separate matrices, and several of them in one tensor.
std::vector<Parameter> all_rows() {
  std::vector<Parameter> rows = model::lay_out(small(false)).rows;
  model::TensorNames names;
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
  const auto fused = model::lay_out(small(true), names).rows;
  rows.insert(rows.end(), fused.begin(), fused.end());
  return rows;
}

const Parameter& row(const std::vector<Parameter>& rows, const std::string& name) {
  return *std::ranges::find(rows, name, &Parameter::name);
}

std::vector<Box> held(const std::string& name, std::int64_t tp, std::int64_t index) {
  static const std::vector<Parameter> rows = all_rows();
  return held_boxes(row(rows, name), {model::tensor_axis, tp, index});
}

TEST(HeldBoxes, FollowTheSplitsOfTheTable) {
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

TEST(HeldBoxes, EachMatrixInOneTensorIsSplitByItself) {
  const std::string block = "fused.layers.0.";
  using Boxes = std::vector<Box>;
  // Queries, keys and values: 12, 4 and 4 rows.
  EXPECT_EQ(held(block + "self_attn.qkv.weight", 2, 1),
            (Boxes{{{6, 0}, {6, 12}}, {{14, 0}, {2, 12}}, {{18, 0}, {2, 12}}}));
  EXPECT_EQ(held(block + "self_attn.qkv.bias", 2, 0),
            (Boxes{{{0}, {6}}, {{12}, {2}}, {{16}, {2}}}));
  EXPECT_EQ(held(block + "experts.gate_up", 2, 1),
            (Boxes{{{0, 0, 3}, {3, 12, 3}}, {{0, 0, 9}, {3, 12, 3}}}));
  EXPECT_EQ(held(block + "experts.down", 2, 1), (Boxes{{{0, 3, 0}, {3, 3, 12}}}));
  EXPECT_EQ(held(block + "mlp.gate.weight", 2, 1), (Boxes{{{0, 0}, {3, 12}}}));  // the router
}

TEST(HeldBoxes, AnotherAxisSplitsNothing) {
  const auto rows = all_rows();
  for (const Parameter& parameter : rows)
    EXPECT_EQ(held_boxes(parameter, {"cp", 4, 2}),
              std::vector<Box>{core::whole_box(parameter.shape)});
}

/// Slices in memory, and the values of the tensors, each of which differs from all others.
struct Memory {
  std::vector<core::TensorSlice> slices;
  std::vector<std::vector<float>> values;

  void add(const Parameter& parameter, const Box& box, std::int64_t offset, std::int64_t count) {
    slices.push_back({parameter.name, parameter.shape, core::DType::f32, offset, count, box});
    values.emplace_back(static_cast<std::size_t>(count));
  }

  /// Calls f(value in memory, value of the tensor) for each element.
  template <typename F>
  void for_each(const std::vector<Parameter>& rows, F&& f) {
    for (std::size_t i = 0; i < slices.size(); ++i) {
      const auto first = 10'000.0f * static_cast<float>(&row(rows, slices[i].name) - rows.data());
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

/// What this rank holds where it plays ranks of a mesh of `tp` times `fsdp` in turn: of each box of
/// its place on `tp` a run. Replicas of what `tp` does not split are the first one's.
Memory play(const std::vector<Parameter>& rows, std::int64_t tp, std::int64_t fsdp,
            bool with_replicas) {
  Memory memory;
  for (std::int64_t rank = world().rank(); rank < tp * fsdp; rank += world().size()) {
    const std::int64_t i_tp = rank % tp, i_fsdp = rank / tp;
    for (const Parameter& parameter : rows) {
      if (!parameter.split && i_tp > 0 && !with_replicas) continue;
      for (const Box& box : held_boxes(parameter, {model::tensor_axis, tp, i_tp})) {
        const std::int64_t n = box.num_elements();
        const std::int64_t first = n * i_fsdp / fsdp;
        memory.add(parameter, box, first, n * (i_fsdp + 1) / fsdp - first);
      }
    }
  }
  return memory;
}

class Folder {
 public:
  Folder() {
    std::string name = (tests::build_folder() / "tests/held.XXXXXX").string();
    if (world().is_root() && ::mkdtemp(name.data()) == nullptr) std::abort();
    path_ = world().broadcast_text(name);
  }
  ~Folder() {
    world().barrier();
    std::error_code ignored;
    if (world().is_root()) std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

TEST(HeldBoxes, WhatTwoRanksSavedAnyOtherNumberLoads) {
  const std::vector<Parameter> rows = all_rows();
  Memory saved = play(rows, 2, 1, false);
  saved.for_each(rows, [](float& in_memory, float of_tensor) { in_memory = of_tensor; });
  std::vector<checkpoint::StoredSlice> stored;
  for (std::size_t i = 0; i < saved.slices.size(); ++i)
    stored.push_back(
        {"master", saved.slices[i], reinterpret_cast<const std::byte*>(saved.values[i].data())});
  const Folder folder;
  checkpoint::save(world(), world(), 0, folder.path(), 1, core::Json::object(), stored,
                   {.block_bytes = 64});
  const auto found = checkpoint::find(world(), folder.path(), "auto");
  // Row-parallel weights too are one slice per rank.
  std::int64_t boxes = 0;
  for (const Parameter& parameter : rows)
    boxes +=
        !parameter.split ? 1 : 2 * std::max<std::int64_t>(1, std::ssize(parameter.split->matrices));
  EXPECT_EQ(std::ssize(found->manifest.extents), boxes);

  const std::pair<std::int64_t, std::int64_t> meshes[] = {{1, 1}, {2, 1}, {4, 1},
                                                          {1, 3}, {2, 2}, {4, 3}};
  for (const auto& [tp, fsdp] : meshes) {
    Memory loaded = play(rows, tp, fsdp, true);
    std::vector<checkpoint::WantedSlice> wanted;
    for (std::size_t i = 0; i < loaded.slices.size(); ++i)
      wanted.push_back(
          {"master", loaded.slices[i], reinterpret_cast<std::byte*>(loaded.values[i].data())});
    const auto report = checkpoint::load(world(), *found, wanted);
    std::int64_t wrong = 0;
    loaded.for_each(rows,
                    [&](float in_memory, float of_tensor) { wrong += in_memory != of_tensor; });
    EXPECT_EQ(wrong, 0) << "tp " << tp << ", fsdp " << fsdp;
    EXPECT_EQ(report.bytes_read, found->manifest.payload_bytes());
  }
}

}  // namespace
}  // namespace finetune::shard::held_boxes_test
