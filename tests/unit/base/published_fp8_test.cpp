// SPDX-License-Identifier: Apache-2.0
// Frozen matrices that are kept in FP8 as files have them: the same numbers on any ranks.

#include <gtest/gtest.h>

#include <ostream>

#include "base/base_hash.hpp"
#include "base/detail/base_weights.hpp"
#include "base/packed_files.hpp"
#include "comm/agree.hpp"
#include "model/layout.hpp"
#include "model/part.hpp"
#include "support/architecture.hpp"
#include "support/model.hpp"
#include "unit/base/fp8_model.hpp"
#include "unit/weights/support.hpp"

namespace finetune::base::published_fp8_test {
namespace {

using tests::LoadedModel;
using tests::own_part;
using tests::Parts;
using tests::world;

struct Case {
  Fp8Scales scales = Fp8Scales::tensor;
  Parts parts = {};
  bool has_experts = false;
  bool has_latents = false;

  friend void PrintTo(const Case& of, std::ostream* out) {
    *out << (of.scales == Fp8Scales::tensor ? "matrices" : "blocks") << ", tp " << of.parts.tp
         << ", ep " << of.parts.ep << (of.has_experts ? ", experts" : "")
         << (of.has_latents ? ", latents" : "");
  }
};

/// Sizes that are no multiples of a block, where ranks do not share them out.
model::Architecture architecture(const Case& of) {
  const bool is_cut = of.scales == Fp8Scales::block && of.parts.tp > 1;
  model::Architecture a = tests::architecture_of(is_cut ? tests::Size{1, 200, 4, 2, 128, 256, 13}
                                                        : tests::Size{1, 200, 5, 5, 40, 168, 13});
  if (of.has_latents) {
    a.rotary_size = 8;
    a.latents = {.d_key_value = 150, .d_query = 144, .unturned = 32, .value_size = 24};
  }
  if (of.has_experts) {
    a.layers = {tests::expert_layer};
    a.experts = {.num = 5, .top_k = 2, .d_ff = 72};
  }
  return a;
}

model::ParameterTable table_of(const Case& of) {
  model::ParameterTable table = model::lay_out(architecture(of));
  for (model::Parameter& row : table.rows) {
    row.trainable = false;
    if (row.role == model::Role::linear || row.role == model::Role::expert)
      row.packing = {.kind = model::Packing::Kind::fp8,
                     .in_files = true,
                     .nests = false,
                     .group_size = of.scales == Fp8Scales::block ? 128 : 0};
  }
  return plan::regroup(table, plan::Bucket::block, of.parts.ep);
}

weights::ModelFiles write_model(const Case& of, const std::filesystem::path& folder) {
  const model::ParameterTable table = table_of(of);
  model::Architecture a = architecture(of);
  const WeightSource random = random_source(a, table, 3);
  weights::ExportPlan plan;
  for (const model::Parameter& row : table.rows)
    plan.tensors.push_back({row.name, core::DType::bf16, row.shape});
  weights::export_folder(folder / "dense", plan,
                         [&](std::string_view name, std::int64_t first, std::span<float> piece) {
                           for (int i = 0; i < static_cast<int>(table.rows.size()); ++i)
                             if (table.row(i).name == name) random.values(i, first, piece);
                         },
                         {});
  tests::write_fp8(weights::ModelFiles::open(folder / "dense"), table, of.scales, folder / "fp8",
                   of.scales == Fp8Scales::block ? "_scale_inv" : "_scale");
  return weights::ModelFiles::open(folder / "fp8");
}

class PublishedFp8 : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!tests::can_share(GetParam().parts)) GTEST_SKIP() << "too few ranks";
  }
};

TEST_P(PublishedFp8, IsUnpackedToTheProductsOfValuesAndScalesOnAnyRanks) {
  const weights::TestFolder folder;
  const weights::ModelFiles files = write_model(GetParam(), folder.path());
  LoadedModel model(architecture(GetParam()), table_of(GetParam()), GetParam().parts, world(),
                    files);
  int num_packed = 0;
  for (int row = 0; row < static_cast<int>(model.whole.rows.size()); ++row) {
    const model::Parameter& own = model.table.row(row);
    if (own.packing.is_dense() || own.count() == 0) continue;
    ++num_packed;
    const int unit = model.shards.unit_of(row);
    model.shards.open(unit);
    const model::Weight weight = model.shards.matrix({row, 1});
    EXPECT_FALSE(weight.quantised) << "its scales are no powers of two";
    const at::Tensor expected =
        own_part(own, base_weight(files, model.whole.row(row))).to(at::kBFloat16);
    EXPECT_TRUE(at::equal(model::unpacked(weight), expected)) << own.name;
    model.shards.close(unit);
  }
  EXPECT_GE(num_packed, 7);
}

TEST_P(PublishedFp8, IsReadByProductsAsOneMatrix) {
  const weights::TestFolder folder;
  LoadedModel model(architecture(GetParam()), table_of(GetParam()), GetParam().parts, world(),
                    write_model(GetParam(), folder.path()));
  const model::RowRange qkv = model.table.decoder.blocks[0].qkv;
  const int unit = model.shards.unit_of(qkv.first);
  model.shards.open(unit);
  std::vector<at::Tensor> parts;
  for (int i = 0; i < qkv.num; ++i)
    parts.push_back(model.shards.weight({qkv.first + i, 1}));
  EXPECT_TRUE(at::equal(model.shards.weight(qkv), at::cat(parts)));
  model.shards.close(unit);
}

TEST_P(PublishedFp8, HasTheHashOfItsFiles) {
  const weights::TestFolder folder;
  const weights::ModelFiles files = write_model(GetParam(), folder.path());
  const LoadedModel mine(architecture(GetParam()), table_of(GetParam()), GetParam().parts, world(),
                         files);
  const std::string expected = frozen_hash(files, table_of(GetParam()), core::DType::bf16);
  EXPECT_EQ(frozen_hash(mine.shards), expected);
}

INSTANTIATE_TEST_SUITE_P(Scales, PublishedFp8,
                         testing::Values(Case{Fp8Scales::tensor}, Case{Fp8Scales::block},
                                         Case{Fp8Scales::tensor, {.tp = 2}},
                                         Case{Fp8Scales::block, {.tp = 2}},
                                         Case{Fp8Scales::tensor, {}, true},
                                         Case{Fp8Scales::block, {}, true},
                                         Case{Fp8Scales::block, {}, true, true},
                                         Case{Fp8Scales::tensor, {.ep = 2}, true},
                                         Case{Fp8Scales::block, {.ep = 2}, true}));

/// All weights are trained: what is in FP8 is unpacked as it is read, by each rank its part.
TEST(PublishedFp8, IsUnpackedWhereItIsTrained) {
  const Case of{Fp8Scales::block};
  const weights::TestFolder folder;
  const weights::ModelFiles files = write_model(of, folder.path());
  model::ParameterTable table = table_of(of);
  for (model::Parameter& row : table.rows) {
    row.packing = {};
    row.trainable = true;
  }
  EXPECT_NO_THROW(require_same_model(files, architecture(of), table));
  const WeightSource source = files_source(files, table);
  for (int row = 0; row < static_cast<int>(table.rows.size()); ++row) {
    const std::vector<float> expected = base_weight(files, table_of(of).row(row));
    std::vector<float> got(expected.size() - 5);
    source.values(row, 5, got);
    EXPECT_TRUE(std::equal(got.begin(), got.end(), expected.begin() + 5)) << table.row(row).name;
  }
}

}  // namespace
}  // namespace finetune::base::published_fp8_test
