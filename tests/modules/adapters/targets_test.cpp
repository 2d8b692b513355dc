// SPDX-License-Identifier: Apache-2.0
// What is said about the modules that adapter.target_modules names.
#include <gtest/gtest.h>

#include <string>

#include "adapters/lora/lora.hpp"
#include "model/adapter.hpp"
#include "model/parameter_table.hpp"
#include "support/ranks.hpp"

namespace finetune {
namespace {

using model::Role;

/// A dense block, one whose experts are matrices, and one whose experts are one tensor.
model::ParameterTable mixed() {
  model::ParameterTable table;
  table.units = {"blocks"};
  const auto add = [&](const std::string& name, std::vector<std::int64_t> shape, Role role) {
    table.rows.push_back({.name = name, .shape = std::move(shape), .role = role});
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
            "of that name stay as they are). Only those outside of experts get a low-rank part.\n");
  EXPECT_NE(warnings({"down_proj"}, "deck.toml").find("(7 matrices of experts"), std::string::npos);
  EXPECT_EQ(warnings({"layers.0.mlp.gate_proj"}, "deck.toml"), "");
  EXPECT_EQ(warnings({"all-linear"}, "deck.toml"), "");
  EXPECT_EQ(warnings({"gate_proj"}, ""), "") << "nobody asked";
}

}  // namespace
}  // namespace finetune
