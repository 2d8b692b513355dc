// SPDX-License-Identifier: Apache-2.0
// Folders that PEFT wrote, and what is refused of them.
#include "weights/peft.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "adapters/lora/lora.hpp"
#include "adapters/lora/settings.hpp"
#include "support.hpp"
#include "weights/safetensors_writer.hpp"

namespace finetune::weights::peft_test {
namespace {

using core::DType;

const std::vector<model::Adapter> kinds = {adapters::lora::adapter()};

core::Json config_with(const core::Json& changes) {
  core::Json config = {{"peft_type", "LORA"},
                       {"task_type", "CAUSAL_LM"},
                       {"r", 2},
                       {"lora_alpha", 16},
                       {"target_modules", {"v_proj", "q_proj"}},
                       {"bias", "none"},
                       {"lora_bias", false},
                       {"rank_pattern", core::Json::object()},
                       {"megatron_core", "megatron.core"},
                       {"some_later_option", nullptr}};
  config.update(changes);
  return config;
}

PeftConfig read_with(const core::Json& changes) {
  return read_peft_config(config_with(changes), "adapter_config.json", kinds);
}

/// A matrix [4, 3] with a low-rank part beside it, and a head that is trained whole.
model::ParameterTable small_table() {
  model::ParameterTable table;
  table.units = {"model", "adapters"};
  table.rows.push_back({.name = "model.q_proj.weight", .shape = {4, 3}, .trainable = false});
  table.rows.push_back({.name = "lm_head.weight", .shape = {5, 4}});
  table.rows.push_back(
      {.name = "base_model.model.model.q_proj.lora_A.weight", .shape = {2, 3}, .adapts = 0});
  table.rows.push_back(
      {.name = "base_model.model.model.q_proj.lora_B.weight", .shape = {4, 2}, .adapts = 0});
  table.rows.push_back(
      {.name = "base_model.model.model.q_proj.lora_magnitude_vector", .shape = {4}, .adapts = 0});
  table.rows.front().adapted = {.parts = {2, 3, 4}, .scale = 8};
  return table;
}

/// Numbers 0, 1, 2, ... in every tensor.
void write_tensors(const TestFolder& folder, std::vector<TensorSpec> specs) {
  SafetensorsWriter writer(folder / peft_file_name, specs);
  for (const TensorSpec& spec : specs) {
    std::vector<float> values(static_cast<std::size_t>(core::num_elements(spec.shape)));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(i);
    std::vector<std::byte> bytes(static_cast<std::size_t>(spec.size_bytes()));
    core::convert(DType::f32, std::as_bytes(std::span(values)), spec.dtype, bytes);
    writer.write(spec.name, bytes);
  }
  writer.finish();
}

std::vector<TensorSpec> specs_of(const model::ParameterTable& table, DType dtype = DType::f32) {
  std::vector<TensorSpec> specs;
  for (const model::Parameter& row : table.rows)
    if (row.trainable) specs.push_back({peft_name(row), dtype, row.shape});
  return specs;
}

TEST(PeftConfig, IsReadIntoOurSettings) {
  const PeftConfig config = read_with({{"r", 64},
                                       {"lora_alpha", 32.5},
                                       {"lora_dropout", 0.1},
                                       {"use_rslora", true},
                                       {"use_dora", true},
                                       {"modules_to_save", {"lm_head"}}});
  EXPECT_EQ(config.settings.of<adapters::lora::Settings>().r, 64);
  EXPECT_EQ(config.settings.of<adapters::lora::Settings>().alpha, 32.5);
  EXPECT_EQ(config.settings.of<adapters::lora::Settings>().dropout, 0.1);
  EXPECT_TRUE(config.settings.of<adapters::lora::Settings>().use_rslora);
  EXPECT_TRUE(config.settings.of<adapters::lora::Settings>().use_dora);
  EXPECT_EQ(config.settings.target_modules, (std::vector<std::string>{"q_proj", "v_proj"}));
  EXPECT_EQ(config.settings.modules_to_save, std::vector<std::string>{"lm_head"});
  EXPECT_FALSE(config.targets_are_in_tensors);
}

TEST(PeftConfig, PatternsAndLeftOutLayersAreToldByTheTensors) {
  EXPECT_TRUE(read_with({{"target_modules", ".*[qv]_proj"}}).targets_are_in_tensors);
  EXPECT_TRUE(read_with({{"target_modules", "all-linear"}}).targets_are_in_tensors);
  EXPECT_TRUE(read_with({{"layers_to_transform", {0, 1}}}).targets_are_in_tensors);
  EXPECT_TRUE(read_with({{"exclude_modules", {"q_proj"}}}).targets_are_in_tensors);
}

TEST(PeftConfig, WhatIsWrittenReadsBack) {
  model::AdapterSettings settings;
  settings.of<adapters::lora::Settings>() = {
      .r = 3, .alpha = 0.5, .use_rslora = true, .use_dora = true};
  settings.modules_to_save = {"lm_head"};
  const core::Json config = to_peft_config(
      settings, kinds.front(), {"a.gate", "a.up", "b.gate", "lm_head"}, {"a.gate", "a.up"});
  const PeftConfig read = read_peft_config(config, "adapter_config.json", kinds);
  EXPECT_EQ(read.settings.of<adapters::lora::Settings>().r, 3);
  EXPECT_EQ(read.settings.of<adapters::lora::Settings>().alpha, 0.5);
  EXPECT_TRUE(read.settings.of<adapters::lora::Settings>().use_dora &&
              read.settings.of<adapters::lora::Settings>().use_rslora);
  EXPECT_EQ(read.settings.modules_to_save, settings.modules_to_save);
  // "gate" would mean that of b as well.
  EXPECT_EQ(read.settings.target_modules, (std::vector<std::string>{"a.gate", "up"}));
}

using Texts = std::vector<std::string>;

TEST(PeftConfig, ReadsRanksAndAlphasByModule) {
  const core::Json changes = {{"rank_pattern", {{"q_proj", 4}, {"layers.[01].v_proj", 6}}},
                              {"alpha_pattern", {{"q_proj", 2.5}}}};
  const PeftConfig read = read_with(changes);
  EXPECT_EQ(read.settings.of<adapters::lora::Settings>().rank_pattern,
            (Texts{"layers.[01].v_proj=6", "q_proj=4"}));
  EXPECT_EQ(read.settings.of<adapters::lora::Settings>().alpha_pattern, Texts{"q_proj=2.5"});
}

TEST(PeftConfig, KeepsTheOrderOfThePatternsInTheFile) {
  const auto in_order = nlohmann::ordered_json::parse(R"({"rank_pattern": {"b": 6, "a": 4}})");
  const PeftConfig read = read_peft_config(config_with({{"rank_pattern", {{"a", 4}, {"b", 6}}}}),
                                           "adapter_config.json", kinds, &in_order);
  EXPECT_EQ(read.settings.of<adapters::lora::Settings>().rank_pattern, (Texts{"b=6", "a=4"}));
}

TEST(PeftConfig, WritesWholeNamesWhereSortedPatternsWouldMeanSomethingElse) {
  model::AdapterSettings settings;
  settings.of<adapters::lora::Settings>().rank_pattern = {"x.up=2", "up=3"};
  const Texts modules = {"x.up", "y.up"};
  EXPECT_EQ(to_peft_config(settings, kinds.front(), modules, modules).at("rank_pattern"),
            core::Json::parse(R"({"x\\.up": 2, "y\\.up": 3})"));
  settings.of<adapters::lora::Settings>().rank_pattern = {"x.up=2", "y.up=3"};
  EXPECT_EQ(to_peft_config(settings, kinds.front(), modules, modules).at("rank_pattern"),
            core::Json::parse(R"({"x.up": 2, "y.up": 3})"));
}

TEST(PeftConfig, EveryOptionThatChangesTheMeaningIsRefusedByName) {
  const std::vector<std::pair<std::string, core::Json>> refused = {
      {"peft_type", "IA3"},
      {"task_type", "SEQ_2_SEQ_LM"},
      {"bias", "all"},
      {"lora_bias", true},
      {"rank_pattern", {{"q_proj", 0}}},
      {"rank_pattern", {{"q_proj", 1.5}}},
      {"rank_pattern", {"q_proj"}},
      {"alpha_pattern", {{"q_proj", -1}}},
      {"fan_in_fan_out", true},
      {"init_lora_weights", "pissa"},
      {"init_lora_weights", "pissa_niter_4"},
      {"init_lora_weights", "olora"},
      {"init_lora_weights", "loftq"},
      {"init_lora_weights", "corda"},
      {"init_lora_weights", "eva"},
      {"layer_replication", {{0, 1}}},
      {"megatron_config", {{"a", 1}}},
      {"use_qalora", true},
      {"alora_invocation_tokens", {3}},
      {"some_later_option", 0.5},
      {"r", 0},
      {"r", 1 << 20},
      {"r", "8"},
      {"lora_alpha", 0},
      {"lora_alpha", "16"},
      {"lora_dropout", 1},
      {"target_modules", {1}},
      {"modules_to_save", "lm_head"},
      {"use_dora", 1}};
  for (const auto& [key, value] : refused) {
    const Thrown thrown = thrown_by([&, key = key, value = value] { read_with({{key, value}}); });
    EXPECT_EQ(thrown.kind, core::ErrorKind::input) << thrown.message;
    EXPECT_TRUE(thrown.says("adapter_config.json: " + key + " = ")) << thrown.message;
  }
  EXPECT_TRUE(
      thrown_by([] { read_peft_config(core::Json(3), "x", kinds); }).says("holds no object"));
}

TEST(PeftAdapter, RoundTripsThroughEveryFloatingDtype) {
  const model::ParameterTable table = small_table();
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    const TestFolder folder;
    folder.put(peft_config_name, config_with(core::Json::object()).dump());
    write_tensors(folder, specs_of(table, dtype));
    const PeftAdapter adapter = PeftAdapter::open(folder.path(), kinds);
    adapter.require_fits(table);
    std::vector<float> values(3);
    adapter.read(table.row(3), 4, values);
    EXPECT_EQ(values, (std::vector<float>{4, 5, 6}));
    adapter.read(table.row(1), 17, values);
    EXPECT_EQ(values, (std::vector<float>{17, 18, 19}));
  }
}

TEST(PeftAdapter, OtherSpellingsOfNamesMeanTheSame) {
  const model::ParameterTable table = small_table();
  const TestFolder folder;
  folder.put(peft_config_name, config_with({{"target_modules", ".*q_proj"}}).dump());
  const std::string module = "base_model.model.model.q_proj";
  write_tensors(folder,
                {{module + ".lora_A.default.weight", DType::f32, {2, 3}},
                 {module + ".lora_B.weight", DType::f32, {4, 2}},
                 {module + ".lora_magnitude_vector.weight", DType::f32, {4}},
                 {"base_model.model.lm_head.modules_to_save.default.weight", DType::f32, {5, 4}}});
  const PeftAdapter adapter = PeftAdapter::open(folder.path(), kinds);
  EXPECT_NO_THROW(adapter.require_fits(table));
  EXPECT_EQ(adapter.settings().target_modules, std::vector<std::string>{"model.q_proj"});
  std::vector<float> values(4);
  adapter.read(table.row(4), 0, values);
  EXPECT_EQ(values, (std::vector<float>{0, 1, 2, 3}));
}

TEST(PeftAdapter, TensorsOfAnotherModelAreListed) {
  const model::ParameterTable table = small_table();
  const TestFolder folder;
  folder.put(peft_config_name, config_with(core::Json::object()).dump());
  std::vector<TensorSpec> specs = specs_of(table);
  specs[1].shape = {2, 4};
  specs[2].name = "base_model.model.model.other.lora_B.weight";
  write_tensors(folder, specs);
  const Thrown thrown =
      thrown_by([&] { PeftAdapter::open(folder.path(), kinds).require_fits(table); });
  EXPECT_EQ(thrown.kind, core::ErrorKind::input);
  for (const char* part :
       {"it is an adapter of another model", "lora_A.weight is [2, 4], should be [2, 3]",
        "missing: base_model.model.model.q_proj.lora_B.weight", "unexpected: \"base_model.model."})
    EXPECT_TRUE(thrown.says(part)) << part << "\n" << thrown.message;
}

TEST(PeftAdapter, TensorsWithoutElementsAreNamed) {
  const TestFolder folder;
  folder.put(peft_config_name, config_with(core::Json::object()).dump());
  std::vector<TensorSpec> specs = specs_of(small_table());
  specs[1].shape = {0};
  write_tensors(folder, specs);
  const Thrown thrown = thrown_by([&] { PeftAdapter::open(folder.path(), kinds); });
  EXPECT_EQ(thrown.kind, core::ErrorKind::input);
  EXPECT_TRUE(thrown.says("q_proj.lora_A.weight\" has shape [0]")) << thrown.message;
  EXPECT_TRUE(thrown.says("ZeRO-3")) << thrown.message;
}

TEST(PeftAdapter, NumbersThatAreNotFiniteAreNamed) {
  const TestFolder folder;
  folder.put(peft_config_name, config_with(core::Json::object()).dump());
  model::ParameterTable table = small_table();
  const std::vector<TensorSpec> specs = {specs_of(table)[1]};
  SafetensorsWriter writer(folder / peft_file_name, specs);
  std::vector<float> values(6, 1.0f);
  values[4] = std::numeric_limits<float>::quiet_NaN();
  writer.write(specs[0].name, std::as_bytes(std::span(values)));
  writer.finish();
  const PeftAdapter adapter = PeftAdapter::open(folder.path(), kinds);
  EXPECT_NO_THROW(adapter.read(table.row(2), 0, std::span(values).first(4)));
  const Thrown thrown =
      thrown_by([&] { adapter.read(table.row(2), 3, std::span(values).first(3)); });
  EXPECT_EQ(thrown.kind, core::ErrorKind::input);
  EXPECT_TRUE(thrown.says("q_proj.lora_A.weight\" holds nan at 4")) << thrown.message;
}

TEST(PeftAdapter, FoldersThatAreNoneAreToldApart) {
  const TestFolder folder;
  EXPECT_TRUE(thrown_by([&] { PeftAdapter::open(folder / "gone", kinds); }).says("no such folder"));
  EXPECT_TRUE(thrown_by([&] {
                PeftAdapter::open(folder.path(), kinds);
              }).says("has no adapter_config.json"));
  folder.put("config.json", "{}");
  EXPECT_TRUE(
      thrown_by([&] { PeftAdapter::open(folder.path(), kinds); }).says("it is a whole model"));
  folder.put(peft_config_name, "{");
  EXPECT_TRUE(thrown_by([&] {
                PeftAdapter::open(folder.path(), kinds);
              }).says("has no adapter_model.safetensors"));
  folder.put("adapter_model.bin", "pickle");
  EXPECT_TRUE(thrown_by([&] { PeftAdapter::open(folder.path(), kinds); }).says("pickle files"));
  folder.put(peft_file_name, "junk");
  EXPECT_EQ(thrown_by([&] { PeftAdapter::open(folder.path(), kinds); }).kind,
            core::ErrorKind::input);
  folder.put(peft_config_name, config_with(core::Json::object()).dump());
  EXPECT_EQ(thrown_by([&] { PeftAdapter::open(folder.path(), kinds); }).kind,
            core::ErrorKind::input);
  folder.put(peft_config_name, std::string(largest_peft_config_bytes + 1, ' '));
  EXPECT_TRUE(thrown_by([&] { PeftAdapter::open(folder.path(), kinds); }).says("at most 1.00 MiB"));
}

TEST(PeftAdapter, LinksOutOfTheFolderAreNotFollowed) {
  const TestFolder folder;
  write_tensors(folder, specs_of(small_table()));
  std::filesystem::rename(folder / peft_file_name, folder / "elsewhere");
  std::filesystem::create_symlink("elsewhere", folder / peft_file_name);
  folder.put(peft_config_name, config_with(core::Json::object()).dump());
  EXPECT_TRUE(thrown_by([&] { PeftAdapter::open(folder.path(), kinds); }).says("symbolic link"));
}

TEST(PeftAdapter, BrokenFilesNeverDoMoreThanThrow) {
  const TestFolder folder;
  const model::ParameterTable table = small_table();
  folder.put(peft_config_name, config_with(core::Json::object()).dump());
  write_tensors(folder, specs_of(table));
  const std::string config = content(folder / peft_config_name);
  const std::string tensors = content(folder / peft_file_name);
  for (std::uint64_t i = 0; i < 120; ++i) {
    folder.put(peft_config_name, i % 2 == 0 ? mutated(config, i) : config);
    folder.put(peft_file_name, i % 2 == 1 ? mutated(tensors, i) : tensors);
    try {
      const PeftAdapter adapter = PeftAdapter::open(folder.path(), kinds);
      adapter.require_fits(table);
      std::vector<float> values(6);
      adapter.read(table.row(2), 0, values);
    } catch (const core::Error& error) {
      EXPECT_EQ(error.kind(), core::ErrorKind::input) << error.what();
    }
  }
}

}  // namespace
}  // namespace finetune::weights::peft_test
