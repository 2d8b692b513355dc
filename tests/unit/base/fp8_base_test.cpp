// SPDX-License-Identifier: Apache-2.0
// Frozen matrices in 8 bits: the same on any ranks, as their definition has them.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <ostream>
#include <string>
#include <vector>

#include "base/base_hash.hpp"
#include "base/detail/base_weights.hpp"
#include "base/detail/frozen_weights.hpp"
#include "comm/agree.hpp"
#include "core/error.hpp"
#include "model/fp8.hpp"
#include "model/layout.hpp"
#include "support/architecture.hpp"
#include "support/model.hpp"
#include "unit/weights/support.hpp"
#include "weights/export_folder.hpp"

namespace finetune::base::fp8_base_test {
namespace {

using model::Fp8Scaling;
using tests::Parts;
using tests::world;

struct Case {
  Fp8Scaling scaling = Fp8Scaling::rowwise;
  Parts parts = {};
  bool has_experts = false;

  model::Fp8Recipe recipe() const { return {.scaling = scaling}; }
  std::int64_t side() const { return scaling == Fp8Scaling::rowwise ? 0 : model::fp8_block; }
  friend void PrintTo(const Case& of, std::ostream* out) {
    *out << (of.side() == 0 ? "rows" : "blocks") << ", tp " << of.parts.tp << ", ep " << of.parts.ep
         << (of.has_experts ? ", experts" : "");
  }
};

/// Rows are of numbers that no shard boundary respects.
model::Architecture architecture(Fp8Scaling scaling, bool has_experts = false) {
  model::Architecture a = tests::architecture_of(scaling == Fp8Scaling::rowwise
                                                     ? tests::Size{1, 48, 4, 4, 16, 80, 13}
                                                     : tests::Size{1, 512, 4, 2, 128, 512, 13});
  if (has_experts) {
    a.layers = {tests::expert_layer};
    a.experts = {.num = 5, .top_k = 2, .d_ff = 32};
  }
  return a;
}

model::ParameterTable table_of(const Case& of) {
  model::ParameterTable table = model::lay_out(architecture(of.scaling, of.has_experts));
  for (model::Parameter& row : table.rows)
    row.trainable = false;
  model::keep_in_fp8(of.recipe(), table);
  return plan::regroup(table, plan::Bucket::block, of.parts.ep);
}

/// Rows and columns of many magnitudes; negative zeros and a row of zeros too.
float value_of(int row, std::int64_t element, std::int64_t columns) {
  const std::int64_t i = element / columns, j = element % columns;
  if (i == 3) return 0;
  if (j == 5) return -0.0f;
  const double phase = std::sin(0.7 * static_cast<double>(element) + row);
  return static_cast<float>(phase * std::exp(2 * std::sin(3.0 * static_cast<double>(i))) *
                            std::exp(3 * std::cos(2.0 * static_cast<double>(j))));
}

WeightSource source_of(const model::ParameterTable& table) {
  return {[&table](int row, std::int64_t first, std::span<float> target) {
    for (std::size_t i = 0; i < target.size(); ++i)
      target[i] = value_of(row, first + static_cast<std::int64_t>(i), table.row(row).shape.back());
  }};
}

at::Tensor whole_values(const model::ParameterTable& table, int row) {
  at::Tensor values = at::empty(table.row(row).shape, at::kFloat);
  source_of(table).values(row, 0,
                          {values.data_ptr<float>(), static_cast<std::size_t>(values.numel())});
  return values;
}

/// By the definition: the smallest powers of two with which bf16 numbers fit into +-448.
struct Reference {
  at::Tensor codes;   ///< u8
  at::Tensor scales;  ///< fp32
  at::Tensor values;  ///< fp32
};
Reference reference(const at::Tensor& values, std::int64_t side) {
  const at::Tensor x = values.to(at::kBFloat16).to(at::kDouble);
  const std::int64_t rows = side == 0 ? 1 : side, columns = side == 0 ? x.size(1) : side;
  const at::Tensor tiles = x.view({x.size(0) / rows, rows, x.size(1) / columns, columns});
  const at::Tensor largest = tiles.abs().amax({1, 3}, true);
  const at::Tensor scales =
      at::exp2(at::ceil(at::log2(largest / 448))).clamp_min(std::ldexp(1.0, -100));
  const at::Tensor codes = (tiles / scales).to(at::kFloat).to(at::kFloat8_e4m3fn);
  return {codes.view(x.sizes()).view(at::kByte), scales.flatten(1).to(at::kFloat),
          (codes.to(at::kDouble) * scales).view(x.sizes()).to(at::kFloat)};
}

/// Of the layer, or of its second expert.
int down_of(const model::ParameterTable& table) {
  const model::BlockRows& block = table.decoder.blocks[0];
  return block.experts.stride == 0 ? block.feed_forward.down
                                   : block.experts.down + block.experts.stride;
}

class BaseInFp8 : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!tests::can_share(GetParam().parts)) GTEST_SKIP() << "too few ranks";
  }
};

struct Loaded : tests::ShardedTable {
  Loaded(const Case& of, const comm::Communicator& all, const WeightSource& source)
      : ShardedTable(table_of(of), shard::make_groups(tests::mesh_of(all, 0, of.parts), true),
                     options(of)) {
    load_frozen(source, shards);
  }
  static shard::Options options(const Case& of) {
    shard::Options options = tests::computing_in(core::DType::bf16);
    options.numbers.fp8 = of.recipe();
    return options;
  }
};

TEST_P(BaseInFp8, IsWhatItsDefinitionSaysOnAnyRanks) {
  const model::ParameterTable whole = table_of(GetParam());
  Loaded model(GetParam(), world(), source_of(whole));
  int num_kept = 0;
  for (int row = 0; row < static_cast<int>(whole.rows.size()); ++row) {
    const model::Parameter& own = model.table.row(row);
    if (own.packing.is_dense()) continue;
    ++num_kept;
    if (own.count() == 0) continue;  // of an expert that another rank has
    const Reference expected = reference(whole_values(whole, row), GetParam().side());
    const int unit = model.shards.unit_of(row);
    model.shards.open(unit);
    const model::Weight weight = model.shards.matrix({row, 1});
    ASSERT_TRUE(weight.quantised) << own.name;
    EXPECT_TRUE(
        at::equal(weight.quantised->values.view(at::kByte), tests::own_part(own, expected.codes)))
        << own.name;
    EXPECT_TRUE(
        at::equal(model::unpacked(weight).to(at::kFloat), tests::own_part(own, expected.values)))
        << own.name;
    // Whole rows have the scales of the logical matrix, whoever shares their inputs.
    if (own.shape == whole.row(row).shape || (GetParam().side() == 0 && own.split->dim == 1)) {
      EXPECT_TRUE(at::equal(weight.quantised->scales, expected.scales)) << own.name;
    }
    model.shards.close(unit);
  }
  EXPECT_EQ(num_kept, GetParam().has_experts ? 4 + 5 * 3 : 7);
}

/// As the products of all experts in one launch read them.
TEST_P(BaseInFp8, HasItsExpertsAtOneDistance) {
  if (!GetParam().has_experts) GTEST_SKIP() << "no experts";
  Loaded model(GetParam(), world(), source_of(table_of(GetParam())));
  const model::ExpertRows& rows = model.table.decoder.blocks[0].experts;
  const model::IndexRange held = model::held_experts(5, model.shards.groups().part_place());
  for (model::RowRange of : {rows.gate_up, model::RowRange{rows.down, 1}}) {
    of.first += static_cast<int>(held.first) * rows.stride;
    const model::RowSeries series{of, rows.stride, held.count()};
    const int unit = model.shards.unit_of(of.first);
    model.shards.open(unit);
    const model::Weight all = model.shards.series(series);
    ASSERT_TRUE(all.quantised && all.fp8);
    for (std::int64_t i = 0; i < series.num; ++i) {
      const model::Weight one = model.shards.matrix(series.at(i));
      EXPECT_TRUE(at::equal(all.quantised->values[i].view(at::kByte),
                            one.quantised->values.view(at::kByte)));
      EXPECT_TRUE(at::equal(all.quantised->scales[i], one.quantised->scales));
    }
    model.shards.close(unit);
  }
}

TEST_P(BaseInFp8, IsReadByProductsAsOneMatrix) {
  const model::ParameterTable whole = table_of(GetParam());
  Loaded model(GetParam(), world(), source_of(whole));
  const model::RowRange qkv = model.table.decoder.blocks[0].qkv;
  const int unit = model.shards.unit_of(qkv.first);
  model.shards.open(unit);
  const model::Weight all = model.shards.matrix(qkv);
  ASSERT_TRUE(all.quantised);
  std::vector<at::Tensor> parts;
  for (int i = 0; i < qkv.num; ++i)
    parts.push_back(model.shards.weight({qkv.first + i, 1}));
  EXPECT_TRUE(at::equal(model::unpacked(all), at::cat(parts)));
  const auto at = reinterpret_cast<std::uintptr_t>(all.quantised->values.const_data_ptr());
  EXPECT_EQ(at % 16, 0u) << "a product of a GPU reads it";
  model.shards.close(unit);
}

TEST_P(BaseInFp8, HasTheHashOfOneRank) {
  const model::ParameterTable whole = table_of(GetParam());
  const Loaded alone({.scaling = GetParam().scaling, .has_experts = GetParam().has_experts},
                     comm::Communicator(), source_of(whole));
  const Loaded mine(GetParam(), world(), source_of(whole));
  const std::string expected = frozen_hash(alone.shards);
  EXPECT_EQ(frozen_hash(mine.shards), expected);
  WeightSource other = source_of(whole);
  const int changed = down_of(whole);
  other.values = [&, before = other.values](int row, std::int64_t first, std::span<float> target) {
    before(row, first, target);
    const std::int64_t at = 6 - first;
    const bool is_changed = row == changed;
    if (is_changed && at >= 0 && at < std::ssize(target))
      target[static_cast<std::size_t>(at)] *= -1;
  };
  EXPECT_NE(frozen_hash(Loaded(GetParam(), world(), other).shards), expected);
}

TEST_P(BaseInFp8, IsTheSameFromFiles) {
  const model::ParameterTable whole = table_of(GetParam());
  const weights::TestFolder folder;
  weights::ExportPlan plan;
  for (const model::Parameter& row : whole.rows)
    plan.tensors.push_back({row.name, core::DType::f32, row.shape});
  const auto read = [&](std::string_view name, std::int64_t first, std::span<float> piece) {
    for (int i = 0; i < static_cast<int>(whole.rows.size()); ++i)
      if (whole.row(i).name == name) source_of(whole).values(i, first, piece);
  };
  weights::export_folder(folder.path() / "model", plan, read, {});
  const auto files = weights::ModelFiles::open(folder.path() / "model");
  const Loaded mine(GetParam(), world(), files_source(files, whole));
  EXPECT_EQ(frozen_hash(mine.shards), frozen_hash(files, whole, core::DType::bf16));
  const int down = down_of(whole);
  const std::vector<float> values = base_weight(files, whole.row(down));
  const at::Tensor expected = reference(whole_values(whole, down), GetParam().side()).values;
  EXPECT_EQ(std::memcmp(values.data(), expected.const_data_ptr(), values.size() * sizeof(float)),
            0);
}

INSTANTIATE_TEST_SUITE_P(Scalings, BaseInFp8,
                         testing::Values(Case{Fp8Scaling::rowwise}, Case{Fp8Scaling::block},
                                         Case{Fp8Scaling::rowwise, {.tp = 2}},
                                         Case{Fp8Scaling::rowwise, {.tp = 4}},
                                         Case{Fp8Scaling::block, {.tp = 2}},
                                         Case{Fp8Scaling::rowwise, {}, true},
                                         Case{Fp8Scaling::rowwise, {.ep = 2}, true},
                                         Case{Fp8Scaling::rowwise, {.tp = 2, .ep = 2}, true}));

TEST(KeepInFp8, TakesFrozenMatricesThatHaveSuchProducts) {
  model::ParameterTable table = model::lay_out(architecture(Fp8Scaling::rowwise));
  const model::BlockRows& block = table.decoder.blocks[0];
  const auto is_kept = [&](int row) {
    return table.row(row).packing.kind == model::Packing::Kind::fp8;
  };
  model::keep_in_fp8({}, table);
  EXPECT_TRUE(std::ranges::none_of(table.rows, [](const auto& row) {
    return !row.packing.is_dense();
  })) << "they are trained";
  for (model::Parameter& row : table.rows)
    row.trainable = &row == &table.rows[static_cast<std::size_t>(block.qkv.first)];
  table.rows[static_cast<std::size_t>(block.feed_forward.down)].packing.kind =
      model::Packing::Kind::nf4;
  model::keep_in_fp8({}, table);
  EXPECT_FALSE(is_kept(block.qkv.first + 1)) << "a trained matrix is read with it";
  EXPECT_TRUE(is_kept(block.attention_out));
  EXPECT_TRUE(is_kept(block.feed_forward.gate_up.first));
  EXPECT_FALSE(is_kept(block.feed_forward.down)) << "it is in 4 bits";
  EXPECT_FALSE(is_kept(table.decoder.embedding));
  EXPECT_FALSE(is_kept(block.attention_norm.weight));
}

TEST(KeepInFp8, LetsNoRanksOfTpCutItsBlocks) {
  model::Architecture a = architecture(Fp8Scaling::block);
  a.num_heads = 8;
  a.num_kv_heads = 4;
  a.head_size = 64;
  model::ParameterTable table = model::lay_out(a);
  for (model::Parameter& row : table.rows)
    row.trainable = false;
  EXPECT_EQ(model::why_not(table, 8), "");
  model::keep_in_fp8({.scaling = Fp8Scaling::block}, table);
  EXPECT_EQ(model::why_not(table, 2), "");
  EXPECT_NE(model::why_not(table, 8).find("blocks of 128 numbers, some of which would be cut"),
            std::string::npos)
      << model::why_not(table, 8);
  EXPECT_EQ(model::why_not(table_of({}), 4), "");
}

TEST(BaseInFp8, TakesFiniteNumbersOnly) {
  const model::ParameterTable whole = table_of({});
  WeightSource source = source_of(whole);
  source.values = [&, before = source.values](int row, std::int64_t first,
                                              std::span<float> target) {
    before(row, first, target);
    const std::int64_t at = 49 - first;
    if (row == whole.decoder.blocks[0].attention_out && at >= 0 && at < std::ssize(target))
      target[static_cast<std::size_t>(at)] = INFINITY;
  };
  try {
    Loaded(Case{}, world(), source);
    ADD_FAILURE() << "it was taken";
  } catch (const core::Error& error) {
    EXPECT_EQ(error.kind(), core::ErrorKind::input);
    EXPECT_NE(std::string(error.what()).find("o_proj.weight: element [0, 49] is inf"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace finetune::base::fp8_base_test
