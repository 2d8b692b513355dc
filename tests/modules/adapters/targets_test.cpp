// SPDX-License-Identifier: Apache-2.0
// What is said about the modules that adapter.target_modules names.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "adapters/lora/lora.hpp"
#include "adapters/lora/parts.hpp"
#include "adapters/lora/settings.hpp"
#include "core/error.hpp"
#include "model/adapter.hpp"
#include "model/parameter_table.hpp"
#include "support/ranks.hpp"

namespace finetune::targets_test {
namespace {

using model::Role;

/// A dense block, one whose experts are matrices, and one whose experts are one tensor.
model::ParameterTable mixed() {
  model::ParameterTable table;
  table.units = {"blocks"};
  const auto add = [&](const std::string& name, std::vector<std::int64_t> shape, Role role) {
    const int stage = 1 + (name[std::string("model.layers.").size()] - '0');
    table.rows.push_back({.name = name, .shape = std::move(shape), .role = role, .stage = stage});
  };
  add("model.layers.0.mlp.gate_proj.weight", {32, 16}, Role::linear);
  add("model.layers.0.mlp.down_proj.weight", {16, 32}, Role::linear);
  for (const std::string expert : {"0", "1", "2"}) {
    const std::string module = "model.layers.1.mlp.experts." + expert;
    add(module + ".gate_proj.weight", {32, 16}, Role::expert);
    add(module + ".down_proj.weight", {16, 32}, Role::expert);
  }
  add("model.layers.2.mlp.experts.down_proj", {4, 32, 16}, Role::expert);
  return table;
}

std::string warnings(const std::vector<std::string>& targets, const std::string& where) {
  model::AdapterSettings settings;
  settings.name = "lora";
  settings.target_modules = targets;
  model::ParameterTable table = mixed();
  testing::internal::CaptureStderr();
  adapters::lora::adapter().rewrite(settings, where, table);
  return testing::internal::GetCapturedStderr();
}

TEST(Targets, CountTheExpertsThatTheyLeaveOut) {
  if (!tests::world().is_root()) {
    EXPECT_EQ(warnings({"gate_proj"}, "deck.toml"), "") << "the first rank says it";
    return;
  }
  EXPECT_EQ(warnings({"gate_proj"}, "deck.toml"),
            "warning: deck.toml: adapter.target_modules names \"gate_proj\" (3 matrices of experts "
            "of that name stay as they are). Only those outside of experts are adapted.\n");
  EXPECT_NE(warnings({"down_proj"}, "deck.toml").find("(7 matrices of experts"), std::string::npos);
  EXPECT_EQ(warnings({"layers.0.mlp.gate_proj"}, "deck.toml"), "");
  EXPECT_EQ(warnings({"all-linear"}, "deck.toml"), "");
  EXPECT_EQ(warnings({"gate_proj"}, ""), "") << "nobody asked";
}

/// Modules with a low-rank part; or the error.
std::string adapted(const std::function<void(model::AdapterSettings&)>& change) {
  model::AdapterSettings settings;
  settings.name = "lora";
  change(settings);
  model::ParameterTable table = mixed();
  std::string all;
  try {
    adapters::lora::adapter().rewrite(settings, "deck.toml", table);
  } catch (const core::Error& error) {
    return error.what();
  }
  for (const model::Parameter& row : table.rows)
    if (row.adapted.exists()) all += row.name.substr(0, row.name.rfind('.')) + "\n";
  return all;
}

constexpr const char* both = "model.layers.0.mlp.gate_proj\nmodel.layers.0.mlp.down_proj\n";

// As in PEFT: re.fullmatch(KEY, module).
TEST(Targets, AreRegularExpressionsForWholeNames) {
  const auto named = [](const std::string& name) {
    return adapted([&](model::AdapterSettings& settings) { settings.target_modules = {name}; });
  };
  EXPECT_EQ(named(".*layers\\.\\d+\\.mlp\\.(gate|down)_proj"), both);
  EXPECT_EQ(named("model.layers.[\\d]+.(mlp|self_attn).(up|gate)_proj"),
            "model.layers.0.mlp.gate_proj\n");
  EXPECT_EQ(named("a|.*\\.mlp\\.gate|.*gate_proj"), "model.layers.0.mlp.gate_proj\n");
  EXPECT_NE(named("layers.*_proj")
                .find("(no module's whole name matches this expression; there "
                      "are down_proj, gate_proj, all-linear)"),
            std::string::npos);
  EXPECT_NE(named(".*experts.*").find("experts and their routers stay"), std::string::npos);
  EXPECT_NE(named(".*(gate").find("the pattern \".*(gate\" cannot be used"), std::string::npos);
}

TEST(Targets, LeaveOutWhatIsExcluded) {
  const auto without = [](const std::vector<std::string>& names) {
    return adapted([&](model::AdapterSettings& settings) { settings.exclude_modules = names; });
  };
  EXPECT_EQ(without({"gate_proj"}), "model.layers.0.mlp.down_proj\n");
  EXPECT_EQ(without({".*\\.[0-5]\\.mlp\\.d.*"}), "model.layers.0.mlp.gate_proj\n");
  EXPECT_NE(without({"q_proj"})
                .find("adapter.exclude_modules names \"q_proj\" (no module of "
                      "target_modules is named so; there are down_proj, gate_proj)"),
            std::string::npos);
  EXPECT_NE(without({"gate_proj", "down_proj"}).find("leave nothing of adapter.target_modules"),
            std::string::npos);
  EXPECT_NE(without({""}).find("adapter.exclude_modules names \"\""), std::string::npos);
}

TEST(Targets, AreOfTheLayersThatAreNamed) {
  const auto of = [](const std::vector<double>& layers) {
    return adapted(
        [&](model::AdapterSettings& settings) { settings.layers_to_transform = layers; });
  };
  EXPECT_EQ(of({2, 0}), both);
  EXPECT_EQ(of({}), both);
  EXPECT_NE(of({2}).find("leave nothing of adapter.target_modules"), std::string::npos);
  EXPECT_NE(of({3}).find("adapter.layers_to_transform names layer 3 (the model's last is 2,"),
            std::string::npos);
}

TEST(Targets, HaveTheLearningRatesOfLoraPlus) {
  model::AdapterSettings settings;
  settings.name = "lora";
  settings.of<adapters::lora::Settings>().loraplus_lr_ratio = 16;
  settings.of<adapters::lora::Settings>().use_dora = true;
  model::ParameterTable table = mixed();
  adapters::lora::adapter().rewrite(settings, "", table);
  using adapters::lora::LowRank;
  const model::Adapted& adapted = table.rows[0].adapted;
  EXPECT_EQ(table.row(adapted.parts[LowRank::a]).lr_ratio, 1);
  EXPECT_EQ(table.row(adapted.parts[LowRank::b]).lr_ratio, 16);
  EXPECT_EQ(table.row(adapted.parts[LowRank::magnitude]).lr_ratio, 16) << "it has one dim";
}

/// Rank and factor of a module's low-rank part.
std::pair<std::int64_t, double> sizes(const model::ParameterTable& table,
                                      const std::string& module) {
  const auto row = std::ranges::find(table.rows, module + ".weight", &model::Parameter::name);
  return {table.row(row->adapted.parts[adapters::lora::LowRank::a]).shape[0], row->adapted.scale};
}

model::AdapterSettings with_patterns(const std::vector<std::string>& ranks,
                                     const std::vector<std::string>& alphas) {
  model::AdapterSettings settings;
  settings.name = "lora";
  settings.of<adapters::lora::Settings>().r = 8;
  settings.of<adapters::lora::Settings>().alpha = 16;
  settings.target_modules = {"layers.0.mlp.gate_proj", "layers.0.mlp.down_proj"};
  settings.of<adapters::lora::Settings>().rank_pattern = ranks;
  settings.of<adapters::lora::Settings>().alpha_pattern = alphas;
  return settings;
}

constexpr const char* gate = "model.layers.0.mlp.gate_proj";
constexpr const char* down = "model.layers.0.mlp.down_proj";

// As in PEFT: re.match(r"(.*\.)?(KEY)$", module), the first that matches counts.
TEST(Patterns, MatchTheEndsOfNamesAsPeftDoes) {
  const auto rewritten = [](const model::AdapterSettings& settings) {
    model::ParameterTable table = mixed();
    adapters::lora::adapter().rewrite(settings, "", table);
    return table;
  };
  using Sizes = std::pair<std::int64_t, double>;
  model::ParameterTable table = rewritten(with_patterns({"gate_proj=4"}, {}));
  EXPECT_EQ(sizes(table, gate), (Sizes{4, 4.0}));
  EXPECT_EQ(sizes(table, down), (Sizes{8, 2.0}));
  table = rewritten(with_patterns({"ate_proj=4"}, {"down_proj=4"}));
  EXPECT_EQ(sizes(table, gate), (Sizes{8, 2.0})) << "not behind a point";
  EXPECT_EQ(sizes(table, down), (Sizes{8, 0.5}));
  table = rewritten(with_patterns({"layers\\.\\d+\\.mlp.*=2", "gate_proj=4"}, {}));
  EXPECT_EQ(sizes(table, gate).first, 2);
  table = rewritten(with_patterns({"^model.layers.0.mlp.(gate|up)_proj=3", "layers=5"}, {}));
  EXPECT_EQ(sizes(table, gate).first, 3);
  EXPECT_EQ(sizes(table, down).first, 8) << "the whole rest of the name";
  model::AdapterSettings rslora = with_patterns({"gate_proj=4"}, {"gate_proj=6"});
  rslora.of<adapters::lora::Settings>().use_rslora = true;
  EXPECT_EQ(sizes(rewritten(rslora), gate), (Sizes{4, 3.0}));
}

TEST(Patterns, ThatMeanNothingAreRefusedInADeckAndAcceptedInAFile) {
  const auto refusal = [](const model::AdapterSettings& settings) -> std::string {
    model::ParameterTable table = mixed();
    try {
      adapters::lora::adapter().rewrite(settings, "deck.toml", table);
    } catch (const core::Error& error) {
      return error.what();
    }
    return "";
  };
  model::AdapterSettings settings = with_patterns({"gate_prj=4"}, {});
  EXPECT_NE(refusal(settings).find("holds \"gate_prj=4\" (no module with a low-rank part"),
            std::string::npos);
  settings.path = "adapter";
  EXPECT_EQ(refusal(settings), "");
  EXPECT_NE(refusal(with_patterns({"(gate=4"}, {})).find("the pattern \"(gate\" cannot be used"),
            std::string::npos);
  EXPECT_NE(refusal(with_patterns(std::vector<std::string>(5000, "q_proj=4"), {}))
                .find("holds 5000 patterns of modules (4096 are the most)"),
            std::string::npos);
  EXPECT_NE(refusal(with_patterns({"(\\w+)*(\\w+)*(\\w+)*(\\w+)*(\\w+)*\\.proj=4"}, {}))
                .find("too many steps"),
            std::string::npos);
}

}  // namespace
}  // namespace finetune::targets_test
