// SPDX-License-Identifier: Apache-2.0
// Whole runs whose products have a scale per block: the same bits on any ranks, and what bf16
// learns.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "model/fp8.hpp"
#include "parallel/trainer.hpp"

namespace finetune::tests::fp8_blocks_test {
namespace {

using plan::Determinism;

Arrangement by_blocks(bool weight_gradients) {
  Arrangement setup;
  setup.numbers = numbers(core::DType::bf16, Determinism::topology);
  setup.numbers.fp8 =
      model::Fp8Recipe{.scaling = model::Fp8Scaling::block, .weight_gradients = weight_gradients};
  setup.kind = TinyKind::wider;
  return setup;
}

model::AdapterSettings lora() {
  model::AdapterSettings settings;
  settings.name = "lora";
  settings.of<adapters::lora::Settings>().r = 3;
  return settings;
}

class Blocks : public testing::TestWithParam<Arrangement> {};

/// Those that gather, publish and keep in ways of their own: the model is large for a test.
bool is_tried(const std::string& name) {
  return name == "FULL_SHARD" || name == "FULL_SHARD, blocks again" || name == "SHARD_GRAD_OP" ||
         name == "HYBRID_SHARD";
}

TEST_P(Blocks, GiveTheSameBitsOnAnyRanks) {
  if (world().size() == 1) GTEST_SKIP() << "compares with one rank";
  const Trajectory expected = Trainer({}, GetParam()).train(3);
  for (Arrangement setup : arrangements(world().size(), GetParam().numbers)) {
    if (!is_tried(setup.name)) continue;
    setup.kind = GetParam().kind;
    setup.adapter = GetParam().adapter;
    const Trajectory got = Trainer(world(), setup).train(3);
    EXPECT_EQ(got.losses, expected.losses) << setup.name;
    EXPECT_EQ(got.norms, expected.norms) << setup.name;
    EXPECT_TRUE(got.weights == expected.weights) << setup.name;
    EXPECT_EQ(got.validation_loss, expected.validation_loss) << setup.name;
  }
}

TEST_P(Blocks, LearnWhatBf16Does) {
  if (world().size() > 1) GTEST_SKIP() << "the bits of one rank";
  constexpr int num_steps = 20;
  constexpr double lr = 1e-3;
  Arrangement wide = GetParam();
  wide.numbers.fp8.reset();
  const Trajectory expected = Trainer(world(), wide).train(num_steps, lr);
  const Trajectory got = Trainer(world(), GetParam()).train(num_steps, lr);
  EXPECT_NE(got.losses, expected.losses);
  const double learnt = expected.losses.front() - expected.losses.back();
  EXPECT_GT(learnt, 0.3);
  EXPECT_NEAR(got.losses.back(), expected.losses.back(), 0.1 * learnt);
  std::printf("%s: bf16 %.4f to %.4f, 8 bits to %.4f\n", GetParam().name, expected.losses.front(),
              expected.losses.back(), got.losses.back());
}

INSTANTIATE_TEST_SUITE_P(Runs, Blocks, testing::ValuesIn([] {
                           Arrangement adapted = by_blocks(false);
                           adapted.name = "lora";
                           adapted.adapter = lora();
                           Arrangement full = by_blocks(false), narrow = by_blocks(true);
                           full.name = "full";
                           narrow.name = "weight_gradients";
                           return std::vector<Arrangement>{full, narrow, adapted};
                         }()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace finetune::tests::fp8_blocks_test
