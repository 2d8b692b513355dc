// SPDX-License-Identifier: Apache-2.0
// Whole runs whose ranks have parts of different sizes, as three key heads on two ranks give: what
// these hold alike lies elsewhere in the shards of each, and is saved once all the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ostream>
#include <span>

#include "model/family.hpp"
#include "registry.hpp"
#include "restart/job.hpp"
#include "support/folders.hpp"
#include "support/golden_models.hpp"
#include "weights/safetensors_writer.hpp"

namespace finetune::tests::uneven_parts_test {
namespace {

namespace fs = std::filesystem;

constexpr int exit_resubmit = 75;
const std::string shards = "parallel.sharding=FULL_SHARD";

struct Mesh {
  const char* name;
  int ranks;
  Words settings;
};
const Mesh tp2_ep2 = {"tp2_ep2", 4, {shards, "parallel.tp=2", "parallel.ep=2"}};
const Mesh tp2_cp2 = {"tp2_cp2", 4, {shards, "parallel.tp=2", "parallel.cp=2"}};
const Mesh tp2_dp2 = {"tp2_dp2", 4, {shards, "parallel.tp=2"}};
const Mesh tp2_copies = {"tp2_copies", 4, {"parallel.tp=2", "parallel.sharding=NO_SHARD"}};
const Mesh ep3 = {"ep3", 3, {shards, "parallel.ep=3"}};
const Mesh tp3 = {"tp3", 3, {"parallel.tp=3"}};

/// A model with an odd number of heads, and the meshes that it goes over.
struct Uneven {
  const char* name;
  const char* family;
  core::Json config;
  Mesh first, second;
  Words settings = {};

  friend void PrintTo(const Uneven& uneven, std::ostream* out) { *out << uneven.name; }
};

/// Nine query and three key heads of 8.
const core::Json nine_heads = {
    {"num_attention_heads", 9}, {"num_key_value_heads", 3}, {"hidden_size", 36}};
const core::Json three_heads = {
    {"n_head", 3}, {"num_key_value_heads", 3}, {"n_embd", 24}, {"n_inner", 40}};
const Words lora = {"adapter.name=lora", "adapter.lora_r=3", "optimizer.lr=2e-2"};

const Uneven models[] = {{"Glm4Moe", "glm4_moe", nine_heads, tp2_ep2, ep3},
                         {"Ernie4_5Moe", "ernie4_5_moe", nine_heads, tp2_ep2, tp2_dp2},
                         {"Gpt2", "gpt2", three_heads, tp2_cp2, tp3},
                         {"Gpt2InCopies", "gpt2", three_heads, tp2_copies, tp2_dp2},
                         {"Lora", "ernie4_5_moe", nine_heads, tp2_ep2, tp2_dp2, lora}};

/// Writes the weights that a model of the folder's configuration has: none is 0 or 1, so that any
/// two elements differ.
void write_weights(const fs::path& folder) {
  const auto found =
      model::identify(model::read_config(folder), "config.json", modules::registry().families);
  const model::ParameterTable table = found.family->describe(found.architecture);
  std::vector<weights::TensorSpec> specs;
  for (const model::Parameter& row : table.rows) {
    specs.push_back({row.name, core::DType::f32, row.shape});
    if (row.is_by_inputs) std::ranges::reverse(specs.back().shape);
  }
  weights::SafetensorsWriter writer(folder / "model.safetensors", specs);
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const bool is_norm = specs[i].name.ends_with("norm.weight");
    const auto values = draw({.key = 43,
                              .stream = i,
                              .count = core::num_elements(specs[i].shape),
                              .centre = is_norm ? 1.0 : 0.0,
                              .scale = 180'000});  // a standard deviation of 0.1
    writer.write(specs[i].name, std::as_bytes(std::span(values)));
  }
  writer.finish();
}

Job job_of(const Uneven& model, const std::string& name, const Words& more = {}) {
  const Words settings =
      with(with(short_run("32-true", 4), {"checkpoint.save_steps=2"}), with(model.settings, more));
  Job job("uneven." + std::string(model.name) + "." + name, settings);
  core::Json config = core::read_json(
      source_folder() / "tests/golden/models" / model.family / "config.json", 1 << 20);
  config.update(model.config);
  write_file(job.model() / "config.json", config.dump());
  write_weights(job.model());
  return job;
}

class UnevenParts : public testing::TestWithParam<Uneven> {};

TEST_P(UnevenParts, AreSavedOnceAndRestoredOnAnotherMesh) {
  const Uneven& model = GetParam();
  const Job reference = job_of(model, "straight"), moved = job_of(model, "moved");
  const Outcome straight = reference.run(1);
  ASSERT_EQ(straight.exit_code, 0) << straight.text();
  const Outcome first =
      moved.run(model.first.ranks, with(model.first.settings, {"train.stop_after_steps=2"}));
  ASSERT_EQ(first.exit_code, exit_resubmit) << first.text();
  const Outcome second = moved.run(model.second.ranks, model.second.settings);
  ASSERT_EQ(second.exit_code, 0) << second.text();
  EXPECT_EQ(count(second.out, "continues from output/step-"), 1) << second.text();
  const Outcome verified = run_finetune(1, {"verify", "output"}, moved.folder());
  EXPECT_EQ(verified.exit_code, 0) << verified.text();
  EXPECT_EQ(count(verified.out, "  good"), 2) << verified.text();
  const auto rows = moved.metrics(), expected = reference.metrics();
  ASSERT_EQ(rows.size(), expected.size());
  ASSERT_FALSE(rows.empty());
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (const char* field : {"loss", "grad_norm"}) {
      if (!expected[i].contains(field)) continue;
      const double wanted = expected[i][field].get<double>();
      EXPECT_NEAR(rows[i][field].get<double>(), wanted, 2e-5 * std::abs(wanted))
          << field << " in row " << i;
    }
}

/// What one mesh saves and another one reads and saves is, bit by bit, what a run began with.
TEST_P(UnevenParts, KeepTheirBitsFromMeshToMesh) {
  const Uneven& model = GetParam();
  const Words still = {"optimizer.lr=0"};
  const Job one = job_of(model, "one", still), moved = job_of(model, "still", still);
  const Outcome alone = one.run(1, {"train.stop_after_steps=2"});
  ASSERT_EQ(alone.exit_code, exit_resubmit) << alone.text();
  const std::string expected = one.exported();
  const Outcome first =
      moved.run(model.first.ranks, with(model.first.settings, {"train.stop_after_steps=2"}));
  ASSERT_EQ(first.exit_code, exit_resubmit) << first.text();
  EXPECT_TRUE(moved.exported() == expected) << "as saved on " << model.first.name;
  const Outcome second = moved.run(model.second.ranks, model.second.settings);
  ASSERT_EQ(second.exit_code, 0) << second.text();
  EXPECT_TRUE(moved.exported() == expected) << "as saved on " << model.second.name;
}

INSTANTIATE_TEST_SUITE_P(Models, UnevenParts, testing::ValuesIn(models),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace finetune::tests::uneven_parts_test
