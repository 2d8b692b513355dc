// SPDX-License-Identifier: Apache-2.0
// IA3's options in PEFT's files and decks; its numbers are in golden_test.cpp.

#include <gtest/gtest.h>

#include "base/peft_weights.hpp"
#include "core/error.hpp"
#include "modules/adapters/adapted_model.hpp"
#include "train/input/described_model.hpp"
#include "weights/peft_config.hpp"

namespace finetune::ia3_test {
namespace {

using Texts = std::vector<std::string>;

const std::vector<model::Adapter>& kinds() {
  return modules::registry().adapters;
}

const model::Adapter& ia3() {
  return *model::find_adapter(kinds(), "ia3");
}

model::AdapterSettings read_with(const core::Json& changes) {
  core::Json config = {{"peft_type", "IA3"},
                       {"task_type", "CAUSAL_LM"},
                       {"target_modules", {"k_proj", "down_proj"}}};
  config.update(changes);
  return weights::read_peft_config(config, "adapter_config.json", kinds()).settings;
}

/// Its only key, as a deck has it.
std::string feedforward_of(const model::AdapterSettings& settings) {
  return model::own_values(ia3(), settings).at(0).second;
}

std::string problem_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const core::Error& error) {
    return error.what();
  }
  return "none";
}

TEST(Ia3, FeedforwardModulesThatTheFileDoesNotNameAreTheUsualOnes) {
  EXPECT_EQ(feedforward_of(read_with(core::Json::object())), R"("down_proj")");
  EXPECT_EQ(feedforward_of(read_with({{"feedforward_modules", nullptr}})), R"("down_proj")");
  EXPECT_EQ(feedforward_of(read_with({{"feedforward_modules", core::Json::array()}})), R"("")");
  EXPECT_EQ(feedforward_of(read_with({{"feedforward_modules", {"up_proj", "down_proj"}}})),
            R"(["down_proj", "up_proj"])");
}

TEST(Ia3, OptionsThatMeanSomethingElseAreRefusedByName) {
  EXPECT_NE(problem_of([] {
              read_with({{"feedforward_modules", ".*down_proj"}});
            }).find("it is read as a list of names, not as a pattern"),
            std::string::npos);
  EXPECT_NE(problem_of([] {
              read_with({{"fan_in_fan_out", true}});
            }).find("fan_in_fan_out = true"),
            std::string::npos);
  EXPECT_NE(problem_of([] {
              read_with({{"peft_type", "VERA"}});
            }).find(R"(peft_type = "VERA" (of PEFT's adapters "IA3" and "LORA" are read))"),
            std::string::npos);
}

TEST(Ia3, WritesEndsOfNamesOrWholeOnesWhereSomeLayersScaleOtherSides) {
  const Texts modules = {"layers.0.up_proj", "layers.1.up_proj", "layers.0.k_proj",
                         "layers.1.k_proj"};
  const auto written = [&](const Texts& feedforward) {
    return weights::to_peft_config(read_with({{"feedforward_modules", feedforward}}), ia3(),
                                   modules, modules);
  };
  const core::Json by_ends = written({"up_proj"});
  EXPECT_EQ(by_ends.at("target_modules"), (Texts{"k_proj", "up_proj"}));
  EXPECT_EQ(by_ends.at("feedforward_modules"), Texts{"up_proj"});
  const core::Json whole = written({"layers.1.up_proj"});
  EXPECT_EQ(whole.at("target_modules"), modules);
  EXPECT_EQ(whole.at("feedforward_modules"), Texts{"layers.1.up_proj"});
}

TEST(Ia3, UsualTargetsThatAModelHasOnlyInExpertsAreLeftOut) {
  auto described =
      train::describe_model({}, tests::golden("models/qwen3_moe"), modules::registry());
  model::ParameterTable& table = described.parameters;
  std::erase_if(table.rows, [](const model::Parameter& row) {
    return row.role == model::Role::linear && row.name.find("down_proj") != std::string::npos;
  });
  model::AdapterSettings settings;
  settings.target_modules = ia3().usual_targets;
  testing::internal::CaptureStderr();
  model::put_on(ia3(), settings, "deck.toml", table);
  const std::string warning = testing::internal::GetCapturedStderr();
  EXPECT_EQ(warning.find("adapter.target_modules is k_proj, v_proj here") != std::string::npos,
            tests::world().is_root())
      << warning;
  const auto num_scaled = std::ranges::count_if(
      table.rows, [](const model::Parameter& row) { return row.adapted.exists(); });
  EXPECT_EQ(num_scaled, 2 * described.architecture.num_layers) << "keys and values";
}

TEST(Ia3, AnAdapterOfAnotherKindNamesTheOneToSet) {
  const auto adapter = weights::PeftAdapter::open(tests::golden("adapters/ia3"), kinds());
  model::AdapterSettings deck;
  deck.name = "lora";
  deck.kind = model::find_adapter(kinds(), "lora");
  const std::string problem = problem_of([&] { base::take_settings(deck, adapter, "deck.toml"); });
  EXPECT_NE(problem.find(R"(deck.toml: adapter.name = "lora")"), std::string::npos) << problem;
  EXPECT_NE(problem.find(R"(Set adapter.name = "ia3".)"), std::string::npos) << problem;
}

TEST(Ia3, TheOrderOfNamesInADeckDoesNotMatter) {
  const auto adapter = weights::PeftAdapter::open(tests::golden("adapters/ia3_mixed"), kinds());
  deck::Deck text(R"([adapter]
name = "ia3"
feedforward_modules = ["q_proj", "gate_proj", "down_proj"]
)",
                  "deck.toml", {});
  deck::Table table = text.table("adapter", "");
  model::AdapterSettings deck;
  deck.bind(table, kinds());
  text.finish();
  EXPECT_EQ(feedforward_of(base::take_settings(deck, adapter, "deck.toml")),
            R"(["down_proj", "gate_proj", "q_proj"])");
}

}  // namespace
}  // namespace finetune::ia3_test
