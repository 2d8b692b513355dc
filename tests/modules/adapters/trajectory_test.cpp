// SPDX-License-Identifier: Apache-2.0
// Twenty AdamW steps of adapters against PEFT: losses, gradient norms and final adapters, beside
// dense weights and beside NF4, on any number of ranks, whatever they share.
//
// The runs beside NF4 are compared with PEFT beside weights that are unpacked by NF4's definition
// (make_qlora_trajectory.py). The reference's own run is not that: see as_the_reference_unpacks.

#include <gtest/gtest.h>

#include <memory>
#include <set>

#include "kernels/nf4.hpp"
#include "modules/adapters/golden_trajectory.hpp"
#include "modules/adapters/through_nf4.hpp"

namespace finetune::trajectory_test {
namespace {

using plan::Sharding;

/// How the ranks share the work: `dp_shard` of them (0: as many as are left) have one copy of the
/// model, or of their parts of it.
struct Sharing {
  const char* name;
  const char* reference;
  Sharding sharding;
  int dp_shard;
  const char* bucket = "BLOCK";
  plan::Determinism determinism = plan::Determinism::run;
  tests::Parts parts = {};
  plan::ContextMethod context = plan::ContextMethod::automatic;
};

Sharing with_parts(const char* name, const char* reference, const tests::Parts& parts,
                   plan::ContextMethod context = plan::ContextMethod::automatic) {
  return {.name = name,
          .reference = reference,
          .sharding = Sharding::full_shard,
          .dp_shard = 0,
          .parts = parts,
          .context = context};
}

const char* const qlora = "qlora_by_definition";
const char* const loraplus = "loraplus";
constexpr auto ring = plan::ContextMethod::ring;

const Sharing sharings[] = {{"LoraFullShard", "lora", Sharding::full_shard, 0},
                            {"LoraFullShardByHalves", "lora", Sharding::full_shard, 0, "LAYER"},
                            {"LoraFullShardAsOne", "lora", Sharding::full_shard, 0, "NONE"},
                            {"LoraFullShardInFixedPoint", "lora", Sharding::full_shard, 0, "BLOCK",
                             plan::Determinism::topology},
                            {"LoraShardGradOp", "lora", Sharding::shard_grad_op, 0},
                            {"LoraNoShard", "lora", Sharding::no_shard, 1},
                            {"LoraHybridShard", "lora", Sharding::hybrid_shard, 2},
                            {"LoraPlusFullShard", loraplus, Sharding::full_shard, 0},
                            {"LoraPlusNoShard", loraplus, Sharding::no_shard, 1},
                            {"QloraFullShard", qlora, Sharding::full_shard, 0},
                            {"QloraFullShardInFixedPoint", qlora, Sharding::full_shard, 0, "BLOCK",
                             plan::Determinism::topology},
                            {"QloraShardGradOp", qlora, Sharding::shard_grad_op, 0, "LAYER"},
                            {"QloraNoShard", qlora, Sharding::no_shard, 1},
                            {"QloraHybridShard", qlora, Sharding::hybrid_shard, 2},
                            {"QloraAsBitsandbytesOnACpu", "qlora", Sharding::full_shard, 0},
                            with_parts("LoraTp2", "lora", {.tp = 2}),
                            with_parts("LoraTp4", "lora", {.tp = 4}),
                            with_parts("LoraCp2", "lora", {.cp = 2}),
                            with_parts("LoraCp3", "lora", {.cp = 3}),
                            with_parts("LoraCp4ByRing", "lora", {.cp = 4}, ring),
                            with_parts("LoraCp2Tp2", "lora", {.cp = 2, .tp = 2}),
                            with_parts("QloraTp2", qlora, {.tp = 2}),
                            with_parts("QloraTp4", qlora, {.tp = 4}),
                            with_parts("QloraCp2", qlora, {.cp = 2}),
                            with_parts("QloraCp3", qlora, {.cp = 3}),
                            with_parts("QloraCp4ByRing", qlora, {.cp = 4}, ring),
                            with_parts("QloraCp2Tp2", qlora, {.cp = 2, .tp = 2})};

/// bitsandbytes 0.50 on a CPU, with which qlora.json was made, looks for the maximum of an element
/// in block row * (columns / 64) + column / 64. Of rows that are no multiple of 64 it so makes
/// another matrix than it packed, and than its own code for devices without kernels makes. What
/// that leaves of a matrix:
std::vector<float> as_the_reference_unpacks(const std::vector<float>& values,
                                            std::int64_t columns) {
  const std::size_t num_blocks = values.size() / kernels::nf4_block;
  std::vector<float> maxima(num_blocks), nested((num_blocks + 255) / 256), back(values.size());
  std::vector<std::uint8_t> codes(values.size() / 2), maxima_codes(num_blocks);
  kernels::nf4_absmax(values, maxima);
  kernels::nf4_quantize(values, maxima, codes);
  const float offset = kernels::nested_offset(maxima);
  kernels::nested_quantize(maxima, offset, maxima_codes, nested);
  for (std::int64_t i = 0; i < std::ssize(values); ++i) {
    const std::int64_t row = i / columns, column = i % columns;
    const auto block = static_cast<std::size_t>(row * (columns / 64) + column / 64);
    const float maximum =
        kernels::nested_levels()[maxima_codes[block]] * nested[block / 256] + offset;
    const std::uint8_t pair = codes[static_cast<std::size_t>(i / 2)];
    const int code = i % 2 == 0 ? pair >> 4 : pair & 15;
    back[static_cast<std::size_t>(i)] =
        kernels::nf4_levels()[static_cast<std::size_t>(code)] * maximum;
  }
  return back;
}

/// Rows that stay dense: which, and what values they have.
struct StayDense {
  std::function<bool(const model::Parameter& row)> which;
  std::function<std::vector<float>(const std::vector<float>& values, const model::Parameter& row)>
      values;
};

/// All other matrices are packed as they should be.
tests::AdaptedSetup with_dense(tests::AdaptedSetup setup, const StayDense& dense) {
  const auto names = std::make_shared<std::set<std::string>>();
  setup.adjust = [names, which = dense.which](model::ParameterTable& table) {
    for (model::Parameter& row : table.rows) {
      if (row.packing.is_dense() || !which(row)) continue;
      names->insert(row.name);
      row.packing = {};
    }
  };
  setup.replace = [names, values = dense.values](const base::WeightSource& files,
                                                 const model::ParameterTable& table) {
    base::WeightSource source = files;
    source.values = [names, values, files, &table](int i, std::int64_t first,
                                                   std::span<float> target) {
      const model::Parameter& row = table.row(i);
      if (!names->contains(row.name)) return files.values(i, first, target);
      std::vector<float> whole(static_cast<std::size_t>(row.count()));
      files.values(i, 0, whole);
      whole = values(whole, row);
      std::copy_n(whole.begin() + first, target.size(), target.begin());
    };
    return source;
  };
  return setup;
}

/// Such matrices have the reference's values.
tests::AdaptedSetup like_the_reference(tests::AdaptedSetup setup) {
  return with_dense(
      std::move(setup),
      {[](const model::Parameter& row) { return row.shape[1] % kernels::nf4_block != 0; },
       [](const std::vector<float>& values, const model::Parameter& row) {
         return as_the_reference_unpacks(values, row.shape[1]);
       }});
}

/// Ranks that share the inputs of a matrix would cut its blocks, which are as long as a row or do
/// not divide it: there, each has its part of what the blocks mean.
tests::AdaptedSetup with_uncut_blocks(tests::AdaptedSetup setup) {
  return with_dense(std::move(setup),
                    {[](const model::Parameter& row) { return row.split && row.split->dim == 1; },
                     [](const std::vector<float>& values, const model::Parameter&) {
                       return tests::through_nf4(values, true);
                     }});
}

class AdapterTrajectory : public testing::TestWithParam<Sharing> {};

TEST_P(AdapterTrajectory, IsThatOfPeft) {
  const Sharing& sharing = GetParam();
  const std::string name = sharing.reference;
  const auto& world = tests::world();
  if (!tests::can_have(world.size(), sharing.dp_shard, sharing.parts))
    GTEST_SKIP() << "needs another number of ranks";
  const world::World mesh = tests::mesh_of(world, sharing.dp_shard, sharing.parts);
  tests::AdaptedSetup setup = {
      .adapter = tests::golden_adapter(name.starts_with("lora") ? "lora" : "qlora"),
      .bucket = sharing.bucket};
  if (name == loraplus)
    setup.adapter.of<adapters::lora::Settings>().loraplus_lr_ratio =
        core::read_json(tests::golden("train/loraplus.json"), 1 << 20)["loraplus_lr_ratio"]
            .get<double>();
  if (name == "qlora") setup = like_the_reference(setup);
  if (name == qlora && sharing.parts.tp > 1) setup = with_uncut_blocks(setup);
  tests::AdaptedModel model(
      setup, mesh,
      {.numbers = {.compute = core::DType::f32, .determinism = sharing.determinism},
       .sharding = sharing.sharding,
       .context = sharing.context});
  EXPECT_EQ(
      tests::expect_golden_trajectory(model, mesh, name, name + "_final/adapter_model.safetensors"),
      model.whole.num_trainable());
}

INSTANTIATE_TEST_SUITE_P(Sharings, AdapterTrajectory, testing::ValuesIn(sharings),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace finetune::trajectory_test
