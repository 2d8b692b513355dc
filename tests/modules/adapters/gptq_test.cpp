// SPDX-License-Identifier: Apache-2.0
// LoRA on packed weights of GPTQ and other programs trains as on the same weights unpacked,
// whatever ranks share.

#include <gtest/gtest.h>

#include "modules/adapters/golden_trajectory.hpp"
#include "modules/adapters/gptq_model.hpp"
#include "unit/base/packed_models.hpp"
#include "unit/weights/support.hpp"

namespace finetune::gptq_test {
namespace {

using plan::Sharding;
using tests::expect_close;
using tests::GptqChoice;
using tests::Losses;

struct Way {
  Sharding sharding = Sharding::full_shard;
  plan::Determinism determinism = plan::Determinism::topology;
  plan::ContextMethod context = plan::ContextMethod::automatic;
};

Losses train(const std::filesystem::path& folder, const world::World& mesh, const Way& way) {
  const core::Json config = core::read_json(folder / "config.json", 1 << 20);
  const std::filesystem::path beside = folder / "quantize_config.json";
  tests::AdaptedModel model(
      {.model = folder,
       .adapter = tests::golden_adapter("lora"),
       .quantization = model::read_quantization(
           config, "config.json",
           std::filesystem::exists(beside) ? core::read_json(beside, 1 << 20) : core::Json(),
           "quantize_config.json")},
      mesh,
      {.numbers = {.compute = core::DType::f32, .determinism = way.determinism},
       .sharding = way.sharding,
       .context = way.context});
  return tests::train_on_golden(model, mesh, tests::four_steps(1e-3));
}

class Gptq : public testing::TestWithParam<GptqChoice> {};

TEST_P(Gptq, TrainsAsTheUnpackedModel) {
  const auto& world = tests::world();
  const weights::TestFolder folder;
  const auto packed = folder.path() / "packed", dense = folder.path() / "dense";
  // Each rank has files of its own: they are the same.
  tests::make_gptq_models(tests::golden("models/llama"), packed, dense, GetParam());
  for (const auto sharding : {Sharding::full_shard, Sharding::hybrid_shard, Sharding::no_shard}) {
    const int dp_shard = sharding == Sharding::full_shard ? world.size()
                         : sharding == Sharding::no_shard ? 1
                                                          : 2;
    if (world.size() % dp_shard != 0) continue;
    const world::World mesh = tests::mesh_of(world, dp_shard);
    expect_close(train(packed, mesh, {.sharding = sharding}),
                 train(dense, mesh, {.sharding = sharding}));
  }
}

TEST_P(Gptq, TrainsOnRanksThatShareItAsTheUnpackedModelOnOne) {
  const auto& world = tests::world();
  const weights::TestFolder folder;
  const auto packed = folder.path() / "packed", dense = folder.path() / "dense";
  tests::make_gptq_models(tests::golden("models/llama"), packed, dense, GetParam());
  const auto method = plan::ContextMethod::ring;
  const Losses expected = train(dense, tests::mesh_of({}, 1), {});
  for (const tests::Parts& parts : tests::trained_parts()) {
    if (!tests::can_have(world.size(), 0, parts)) continue;
    SCOPED_TRACE("tp " + std::to_string(parts.tp) + ", cp " + std::to_string(parts.cp));
    expect_close(train(packed, tests::mesh_of(world, 0, parts),
                       {.determinism = plan::Determinism::run, .context = method}),
                 expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Choices, Gptq,
                         testing::Values(GptqChoice{.group_size = 32},
                                         GptqChoice{.group_size = 64, .has_biases = true},
                                         GptqChoice{.group_size = 128, .is_v2 = true},
                                         GptqChoice{.group_size = -1, .has_config_beside = true},
                                         GptqChoice{.group_size = 32, .act_order = true}));

/// Of tests/golden/packed.
class Published : public testing::TestWithParam<std::string> {};

TEST_P(Published, TrainsAsTheUnpackedModel) {
  const auto& world = tests::world();
  const auto packed = tests::packed_folder(GetParam());
  const weights::TestFolder folder;
  tests::write_unpacked(GetParam(), folder.path() / "dense");
  const Losses expected = train(folder.path() / "dense", tests::mesh_of({}, 1), {});
  expect_close(train(packed, tests::mesh_of(world, world.size()), {}), expected);
  const tests::Parts pair{.tp = 2};
  const model::ParameterTable table = tests::PackedModel(GetParam()).table;
  if (!tests::can_have(world.size(), 0, pair) || !model::why_not(table, pair.tp).empty()) return;
  expect_close(
      train(packed, tests::mesh_of(world, 0, pair), {.determinism = plan::Determinism::run}),
      expected);
}

INSTANTIATE_TEST_SUITE_P(Formats, Published, testing::ValuesIn(tests::packed_names()),
                         [](const auto& of) { return of.param; });

}  // namespace
}  // namespace finetune::gptq_test
