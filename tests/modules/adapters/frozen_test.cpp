// SPDX-License-Identifier: Apache-2.0
// What frozen units give back: dense tensors as the files have them, packed ones as their kernels
// unpack them, whatever ranks keep them.

#include <gtest/gtest.h>

#include <optional>

#include "model/fp8.hpp"

#include "modules/adapters/adapted_model.hpp"
#include "modules/adapters/through_nf4.hpp"
#include "modules/golden_steps.hpp"

namespace finetune::frozen_test {
namespace {

class Frozen : public testing::TestWithParam<std::tuple<const char*, bool, const char*>> {};

TEST_P(Frozen, WeightsAreThoseOfTheFilesOrWhatTheirPackingLeavesOfThem) {
  const auto& [name, nests, bucket] = GetParam();
  const world::World mesh = tests::mesh_of(tests::world(), tests::world().size());
  model::AdapterSettings settings = tests::golden_adapter(name);
  settings.double_quant = nests;
  tests::AdaptedModel model({.adapter = settings, .bucket = bucket}, mesh,
                            {.numbers = {.compute = core::DType::f32}});
  const auto files = weights::ModelFiles::open(tests::golden("models/llama"));
  int num_packed = 0;
  for (int row = 0; row < static_cast<int>(model.table.rows.size()); ++row) {
    const model::Parameter& parameter = model.table.row(row);
    if (parameter.trainable) continue;
    auto expected = tests::read_golden<float>(files, parameter.name);
    if (!parameter.packing.is_dense()) {
      expected = tests::through_nf4(expected, nests);
      ++num_packed;
    }
    model.shards.open(model.shards.unit_of(row));
    const at::Tensor weight = model.shards.weight({row, 1}).contiguous();
    EXPECT_EQ(weight.sizes(), at::IntArrayRef(parameter.shape));
    const std::span<const float> got(weight.const_data_ptr<float>(), expected.size());
    EXPECT_EQ(tests::largest_difference(got, expected), 0) << parameter.name;
    model.shards.close(model.shards.unit_of(row));
  }
  EXPECT_EQ(num_packed, std::string(name) == "qlora" ? 14 : 0);
}

INSTANTIATE_TEST_SUITE_P(Packings, Frozen,
                         testing::Values(std::tuple("lora", true, "BLOCK"),
                                         std::tuple("qlora", true, "BLOCK"),
                                         std::tuple("qlora", true, "NONE"),
                                         std::tuple("qlora", false, "LAYER")));

/// What a pass sends, and the bytes of a block's frozen shard.
struct Sent {
  std::int64_t bytes = 0;
  std::int64_t shard_bytes = 0;
};

Sent send(const std::string& adapter, const world::World& mesh,
          const std::optional<model::Fp8Recipe>& fp8 = {}) {
  const auto keep = [&](model::ParameterTable& table) {
    if (fp8) model::keep_in_fp8(*fp8, table);
  };
  tests::AdaptedModel model({.adapter = tests::golden_adapter(adapter), .adjust = keep}, mesh,
                            {.numbers = {.compute = core::DType::bf16, .fp8 = fp8}});
  const auto files = weights::ModelFiles::open(tests::golden("train/data.safetensors"));
  const data::StepData step = tests::step_data(files, 0, 2);
  const std::int64_t before = model.shards.groups().fsdp->traffic().sent_bytes;
  train::forward_backward(model.engine(), step.micro_steps[0], 1.0);
  model.shards.finish_gradients();
  const int block = model.shards.unit_of(model.engine().model.block_rows(0).first);
  return {model.shards.groups().fsdp->traffic().sent_bytes - before,
          model.shards.map().unit(block).shard_size};
}

TEST(Nf4, TravelsInAQuarterOfTheBytesOfBf16) {
  const auto& world = tests::world();
  const world::World mesh = tests::mesh_of(world, world.size());
  const Sent dense = send("lora", mesh), packed = send("qlora", mesh);
  // Two blocks: the first is gathered for forward and for backward, the last stays in between.
  constexpr std::int64_t num_gathers = 3;
  EXPECT_EQ(dense.bytes - packed.bytes,
            (world.size() - 1) * num_gathers * (dense.shard_bytes - packed.shard_bytes));
  const double part =
      static_cast<double>(packed.shard_bytes) / static_cast<double>(dense.shard_bytes);
  // 4 bits and the maxima of blocks of 64; norms stay as they are.
  EXPECT_GT(part, 0.25);
  EXPECT_LT(part, 0.28);
}

TEST(Fp8, TravelsInHalfTheBytesOfBf16) {
  const auto& world = tests::world();
  const world::World mesh = tests::mesh_of(world, world.size());
  const Sent dense = send("lora", mesh), narrow = send("lora", mesh, model::Fp8Recipe{});
  constexpr std::int64_t num_gathers = 3;
  EXPECT_EQ(dense.bytes - narrow.bytes,
            (world.size() - 1) * num_gathers * (dense.shard_bytes - narrow.shard_bytes));
  const double part =
      static_cast<double>(narrow.shard_bytes) / static_cast<double>(dense.shard_bytes);
  // A scale per row of 64 numbers or more; norms stay as they are.
  EXPECT_GT(part, 0.5);
  EXPECT_LT(part, 0.54);
}

}  // namespace
}  // namespace finetune::frozen_test
