// SPDX-License-Identifier: Apache-2.0
// However ranks share the work, low-rank parts of a tied embedding and of experts are trained
// alike.
#include <gtest/gtest.h>

#include "adapters/lora/settings.hpp"
#include "parallel/trainer.hpp"

namespace finetune::tests::part_parity_test {
namespace {

struct Parts {
  const char* name;
  TinyKind kind;
  std::vector<std::string> modules = {};
  std::vector<std::string> parameters = {};
};

class PartParity : public testing::TestWithParam<Parts> {};

TEST_P(PartParity, TopologyGivesTheSameBitsOnAnyRanks) {
  const Parts& parts = GetParam();
  model::AdapterSettings adapter;
  adapter.name = "lora";
  adapter.target_modules = parts.modules;
  auto& own = adapter.of<adapters::lora::Settings>();
  own.r = 3;
  own.target_parameters = parts.parameters;
  if (parts.parameters.empty()) own.dropout = 0.25;
  for (const core::DType compute : {core::DType::f32, core::DType::bf16}) {
    const plan::Numbers exact = numbers(compute, plan::Determinism::topology);
    const Trajectory expected =
        Trainer({}, {.numbers = exact, .kind = parts.kind, .adapter = adapter}).train(6);
    EXPECT_NE(expected.losses.front(), expected.losses.back());
    for (Arrangement setup : arrangements(world().size(), exact)) {
      setup.adapter = adapter;
      setup.kind = parts.kind;
      const Trajectory got = Trainer(world(), setup).train(6);
      EXPECT_EQ(got.losses, expected.losses) << setup.name;
      EXPECT_EQ(got.norms, expected.norms) << setup.name;
      EXPECT_TRUE(got.weights == expected.weights) << setup.name;
      EXPECT_EQ(got.validation_loss, expected.validation_loss) << setup.name;
    }
  }
}

const std::vector<std::string> both = {"experts.gate_up_proj", "experts.down_proj"};

INSTANTIATE_TEST_SUITE_P(
    Models, PartParity,
    testing::Values(Parts{"tied", TinyKind::tied, {"embed_tokens"}},
                    Parts{"experts", TinyKind::experts, {}, both},
                    Parts{"fused_experts", TinyKind::fused_experts, {"q_proj"}, both}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace finetune::tests::part_parity_test
