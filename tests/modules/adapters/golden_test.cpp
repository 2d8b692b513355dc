// SPDX-License-Identifier: Apache-2.0
// Adapters that PEFT saved give its loss, its gradients and its merged weights: DoRA, rsLoRA, IA3,
// modules that are trained whole.

#include <gtest/gtest.h>

#include "base/merge.hpp"
#include "core/json.hpp"
#include "modules/adapters/adapted_model.hpp"
#include "modules/golden_steps.hpp"
#include "train/input/described_model.hpp"

namespace finetune::golden_test {
namespace {

using model::Recompute;
using train::Blocks;

/// As the file says it: of those that begin with other options than ours, the deck's would be.
model::AdapterSettings settings_of(const std::filesystem::path& folder) {
  const auto adapter = weights::PeftAdapter::open(folder, modules::registry().adapters);
  model::AdapterSettings settings = adapter.settings();
  settings.name = adapter.kind().name;
  return settings;
}

/// The small model that the adapter was made for.
std::string family_of(const std::filesystem::path& folder) {
  return core::read_json(folder / "adapter_config.json", 1 << 20)["base_model_name_or_path"];
}

class Adapters : public testing::TestWithParam<std::tuple<const char*, Blocks, Recompute>> {};

TEST_P(Adapters, HaveTheLossAndTheGradientsOfPeft) {
  const auto& [name, blocks, recompute] = GetParam();
  const std::filesystem::path folder = tests::golden("adapters");
  const auto expected = weights::ModelFiles::open(folder / (std::string(name) + ".safetensors"));
  const auto& world = tests::world();
  const world::World mesh = tests::mesh_of(world, world.size());
  const std::string family = family_of(folder / name);
  tests::AdaptedModel model({.model = tests::golden("models/" + family),
                             .adapter = settings_of(folder / name),
                             .start = folder / name,
                             .recompute = recompute,
                             .blocks = blocks},
                            mesh, {.numbers = {.compute = core::DType::f32}});
  const auto batch = tests::micro_batch(
      weights::ModelFiles::open(tests::golden("cases/" + family + ".safetensors")), 0, 0, 2);
  const double per_token = 1.0 / static_cast<double>(tests::num_targets(batch));
  // One rank has the batch, the others take part with nothing.
  const auto mine = world.is_root() ? std::optional(batch) : std::nullopt;
  const auto sum = train::forward_backward(model.engine(), mine, per_token);
  if (world.is_root()) {
    EXPECT_NEAR(sum.loss * per_token, tests::read_golden<float>(expected, "loss")[0], 1e-5);
  }
  tests::RowComparison comparison(expected);
  model.for_each_gradient([&](int i_row, std::int64_t i, float value) {
    std::string row = model.table.row(i_row).name;
    if (model.table.row(i_row).adapts < 0) row = model::peft_prefix + row;
    comparison.compare("grad." + row + (row.ends_with("vector") ? ".weight" : ""), i, value);
  });
  comparison.expect_within(2e-5);
  EXPECT_EQ(mesh.fsdp.all_reduce(comparison.num_compared(), comm::Reduce::sum),
            model.table.num_trainable());
}

TEST(Adapters, MergeIntoTheWeightsThatPeftMerges) {
  const std::filesystem::path folder = tests::golden("adapters");
  for (const std::string name : {"ia3", "ia3_mixed"}) {
    const auto files =
        weights::ModelFiles::open(tests::golden("models/" + family_of(folder / name)));
    auto described = train::describe_model({}, files.folder(), modules::registry());
    train::rewrite_for(settings_of(folder / name), "test", modules::registry(),
                       described.parameters);
    const auto adapter = weights::PeftAdapter::open(folder / name, modules::registry().adapters);
    const model::ParameterTable& table = described.parameters;
    base::Merge merge(
        files, table,
        [&](const model::Parameter& row, std::int64_t first, std::span<float> target) {
          adapter.read(row, first, target);
        },
        std::vector<core::DType>(table.rows.size(), core::DType::f32), base::MergeInto::trained);
    const auto expected = weights::ModelFiles::open(folder / (name + ".safetensors"));
    std::int64_t num_compared = 0, num_matrices = 0;
    for (int i = 0; i < static_cast<int>(table.rows.size()); ++i) {
      const model::Parameter& row = table.row(i);
      const std::string key = "merged." + row.name;
      if (!expected.contains(key)) {
        EXPECT_FALSE(row.adapted.exists()) << row.name;
        continue;
      }
      std::vector<float> values(static_cast<std::size_t>(row.count()));
      merge.read(i, 0, values);
      EXPECT_LT(tests::largest_difference(values, tests::read_golden<float>(expected, key)), 1e-7)
          << row.name;
      ++num_compared;
      num_matrices += row.shape.size() == 2 ? 1 : 0;
    }
    EXPECT_EQ(num_compared, name == "ia3" ? 6 : 14) << "with the biases of queries and keys";
    EXPECT_EQ(merge.report().num_merged, num_matrices);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Ways, Adapters,
    testing::Values(std::tuple("ia3", Blocks::kept, Recompute::nothing),
                    std::tuple("ia3", Blocks::recomputed, Recompute::cheap),
                    std::tuple("ia3_mixed", Blocks::kept, Recompute::nothing),
                    std::tuple("ia3_mixed", Blocks::recomputed, Recompute::nothing),
                    std::tuple("ia3_mixed", Blocks::kept, Recompute::cheap),
                    std::tuple("mixed", Blocks::kept, Recompute::nothing),
                    std::tuple("mixed", Blocks::recomputed, Recompute::cheap),
                    std::tuple("dora", Blocks::kept, Recompute::nothing),
                    std::tuple("dora", Blocks::recomputed, Recompute::nothing),
                    std::tuple("dora", Blocks::kept, Recompute::cheap),
                    std::tuple("rslora", Blocks::kept, Recompute::nothing),
                    std::tuple("rslora", Blocks::recomputed, Recompute::cheap),
                    std::tuple("vocabulary", Blocks::kept, Recompute::nothing),
                    std::tuple("vocabulary", Blocks::recomputed, Recompute::cheap),
                    std::tuple("tied", Blocks::kept, Recompute::nothing),
                    std::tuple("experts", Blocks::kept, Recompute::nothing),
                    std::tuple("experts", Blocks::recomputed, Recompute::cheap),
                    std::tuple("experts_down", Blocks::kept, Recompute::cheap),
                    std::tuple("experts_transposed", Blocks::kept, Recompute::nothing),
                    std::tuple("experts_by_inputs", Blocks::kept, Recompute::nothing)));

}  // namespace
}  // namespace finetune::golden_test
