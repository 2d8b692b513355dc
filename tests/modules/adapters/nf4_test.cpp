// SPDX-License-Identifier: Apache-2.0
// QLoRA on ranks that share matrices or sequences trains as on one rank.

#include <gtest/gtest.h>

#include "core/file.hpp"
#include "core/json.hpp"
#include "model/part.hpp"
#include "modules/adapters/golden_trajectory.hpp"
#include "unit/weights/support.hpp"
#include "weights/safetensors_writer.hpp"

namespace finetune::nf4_test {
namespace {

/// A model whose matrices four ranks share without cutting blocks of 64. Parts of q_proj and
/// down_proj begin within the blocks of maxima that are quantised together; on two ranks those of
/// gate_proj do not. Four ranks have two heads of keys between them.
core::Json config() {
  core::Json config = core::read_json(tests::golden("models/llama") / "config.json", 1 << 20);
  config["num_attention_heads"] = 8;
  config["head_dim"] = 32;
  config["intermediate_size"] = 512;
  config["initializer_range"] = 0.1;
  return config;
}

void write_model(const std::filesystem::path& folder) {
  core::write_text_atomically(folder / "config.json", config().dump());
  const model::Identified identified =
      model::identify(model::read_config(folder), "config.json", modules::registry().families);
  const model::ParameterTable table = identified.family->describe(identified.architecture);
  const auto source = base::random_source(identified.architecture, table, 5);
  std::vector<weights::TensorSpec> tensors;
  for (const model::Parameter& row : table.rows)
    tensors.push_back({row.name, core::DType::f32, row.shape});
  weights::SafetensorsWriter writer(folder / "model.safetensors", tensors);
  for (int i = 0; i < static_cast<int>(table.rows.size()); ++i) {
    std::vector<float> values(static_cast<std::size_t>(table.row(i).count()));
    source.values(i, 0, values);
    writer.write(table.row(i).name, std::as_bytes(std::span(values)));
  }
  writer.finish();
}

tests::Losses train(const tests::AdaptedSetup& setup, const world::World& mesh,
                    plan::ContextMethod context) {
  tests::AdaptedModel model(setup, mesh,
                            {.numbers = {.compute = core::DType::f32}, .context = context});
  return tests::train_on_golden(model, mesh, tests::four_steps(1e-2));
}

int num_nested(const model::ParameterTable& table) {
  return static_cast<int>(std::ranges::count_if(table.rows, [](const model::Parameter& row) {
    return !row.packing.is_dense() && row.packing.nests;
  }));
}

class Nf4 : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    write_model(folder_.path());
    setup_ = {.model = folder_.path(), .adapter = tests::golden_adapter("qlora"), .start = {}};
    setup_.adapter.double_quant = GetParam();
  }

  weights::TestFolder folder_;  // of each rank: they are the same
  tests::AdaptedSetup setup_;
};

TEST_P(Nf4, TrainsOnRanksThatShareItAsOnOne) {
  const auto& world = tests::world();
  const tests::Losses expected =
      train(setup_, tests::mesh_of({}, 1), plan::ContextMethod::automatic);
  for (const tests::Parts& parts : tests::trained_parts()) {
    if (!tests::can_have(world.size(), 0, parts)) continue;
    SCOPED_TRACE("tp " + std::to_string(parts.tp) + ", cp " + std::to_string(parts.cp));
    tests::expect_close(train(setup_, tests::mesh_of(world, 0, parts), plan::ContextMethod::ring),
                        expected);
  }
}

TEST_P(Nf4, KeepsNestedMaximaWhereNoPartBeginsWithinThem) {
  const tests::AdaptedModel model(setup_, tests::mesh_of({}, 1), {});
  const int num_packed = GetParam() ? 2 * 7 : 0, num_kept = GetParam() ? 2 * 2 : 0;
  EXPECT_EQ(num_nested(model.whole), num_packed);
  EXPECT_EQ(num_nested(model::part_of(model.whole, {.tp = 2})), num_kept);
  EXPECT_EQ(num_nested(model::part_of(model.whole, {.tp = 4})), 0);
}

INSTANTIATE_TEST_SUITE_P(Maxima, Nf4, testing::Bool(),
                         [](const auto& info) { return info.param ? "Nested" : "InFp32"; });

}  // namespace
}  // namespace finetune::nf4_test
