// SPDX-License-Identifier: Apache-2.0
// An adapter that is left out of a pass leaves the model that it was put on.

#include <gtest/gtest.h>

#include "adapters/lora/settings.hpp"
#include "model/rope.hpp"
#include "modules/adapters/adapted_model.hpp"

namespace finetune::switch_test {
namespace {

at::Tensor logits_of(const train::Engine& engine) {
  const at::Tensor ids = at::tensor({1, 9, 4, 17, 3}, at::kLong);
  const model::Sequence sequence =
      model::make_sequence(engine.architecture, 1, ids.numel(), at::kCPU);
  return train::logits(engine, ids, sequence, train::Positions::all);
}

model::AdapterSettings golden_dora() {
  model::AdapterSettings settings;
  settings.name = "lora";
  settings.of<adapters::lora::Settings>().r = 4;
  settings.of<adapters::lora::Settings>().alpha = 6;
  settings.of<adapters::lora::Settings>().use_dora = true;
  settings.target_modules = {"q_proj", "v_proj", "o_proj", "up_proj", "down_proj"};
  return settings;
}

class AdapterSwitch : public testing::TestWithParam<const char*> {};

TEST_P(AdapterSwitch, LeavesTheModelBeforeTheAdapter) {
  const auto& world = tests::world();
  const world::World mesh = tests::mesh_of(world, world.size());
  const shard::Options options{.numbers = {.compute = core::DType::f32}};
  tests::AdaptedModel plain({.adapter = {}, .start = {}}, mesh, options);
  // LoRA as it is in the middle of a run: B is not zero.
  const bool is_dora = std::string(GetParam()) == "dora";
  tests::AdaptedModel adapted(
      {.adapter = is_dora ? golden_dora() : tests::golden_adapter("lora"),
       .start = is_dora ? tests::golden("adapters/dora") : tests::golden("train/lora_init")},
      mesh, options);
  if (!is_dora)
    for (const int unit : adapted.shards.trained_units()) {
      adapted.shards.master(unit).add_(0.05);
      adapted.shards.publish(unit);
    }

  const train::Engine engine = adapted.engine();
  const at::Tensor with = logits_of(engine);
  train::Engine without = engine;
  without.uses_adapter = false;
  const at::Tensor expected = logits_of(plain.engine());
  EXPECT_TRUE(logits_of(without).equal(expected));
  EXPECT_FALSE(with.equal(expected));
  EXPECT_TRUE(logits_of(engine).equal(with)) << "and it is back";
}

INSTANTIATE_TEST_SUITE_P(Kinds, AdapterSwitch, testing::Values("lora", "dora"));

TEST(AdapterSwitchOff, IsRefusedWhereMoreIsTrained) {
  const auto& world = tests::world();
  const world::World mesh = tests::mesh_of(world, world.size());
  model::AdapterSettings settings = tests::golden_adapter("lora");
  settings.modules_to_save = {"norm"};
  tests::AdaptedModel adapted({.adapter = settings, .start = {}}, mesh, {});
  const train::Engine engine = adapted.engine();
  train::Engine without = engine;
  without.uses_adapter = false;
  EXPECT_THROW(logits_of(without), core::Error);
}

}  // namespace
}  // namespace finetune::switch_test
