// SPDX-License-Identifier: Apache-2.0
// Frozen experts that are kept in MXFP4 as files have them: the same numbers on any ranks; and what
// files may not say.
#include "base/mxfp4_files.hpp"

#include <gtest/gtest.h>

#include <ostream>

#include "base/base_hash.hpp"
#include "base/detail/base_weights.hpp"
#include "base/packed_files.hpp"
#include "model/packing.hpp"
#include "model/part.hpp"
#include "model/quantization.hpp"
#include "models/gpt/gpt.hpp"
#include "support/architecture.hpp"
#include "support/model.hpp"
#include "unit/weights/support.hpp"
#include "weights/export_folder.hpp"

namespace finetune::base::mxfp4_files_test {
namespace {

using tests::LoadedModel;
using tests::own_part;
using tests::Parts;
using tests::world;
using weights::thrown_by;

const model::Quantization quantization{
    .packing = {.kind = model::Packing::Kind::mxfp4, .in_files = true, .nests = false}};

model::Architecture architecture() {
  model::Architecture a =
      tests::architecture_of({1, 64, 4, 2, 16, /*d_ff=*/0, 13}, tests::expert_layer);
  a.has_sinks = a.qkv_bias = a.attention_out_bias = true;
  a.experts = {.num = 5, .top_k = 2, .d_ff = 96, .has_biases = true};
  return a;
}

model::ParameterTable table_of(std::int64_t ep) {
  model::ParameterTable table = models::gpt::gpt_oss().describe(architecture());
  for (model::Parameter& row : table.rows)
    row.trainable = false;
  model::mark_packed(quantization, "config.json", table);
  return plan::regroup(table, plan::Bucket::block, ep);
}

/// Codes and exponents that follow no pattern of a block; exponents about that of 1. Else zeros.
std::byte byte_of(std::string_view name, std::int64_t i) {
  const auto number = (i * 2654435761 + i / 251) >> 8;
  if (name.ends_with("_scales")) return static_cast<std::byte>(120 + number % 9);
  return name.ends_with("_blocks") ? static_cast<std::byte>(number % 256) : std::byte{0};
}

weights::ModelFiles write_model(const std::filesystem::path& folder) {
  const model::ParameterTable table = table_of(1);
  weights::ExportPlan plan;
  for (const model::Parameter& row : table.rows)
    for (const model::Plane& plane : model::planes(row, core::DType::f32))
      plan.tensors.push_back({row.name + plane.suffix, plane.dtype, plane.shape});
  weights::export_bytes(folder, plan,
                        [](std::string_view name, std::int64_t first, std::span<std::byte> target) {
                          for (std::size_t i = 0; i < target.size(); ++i)
                            target[i] = byte_of(name, first + static_cast<std::int64_t>(i));
                        },
                        {});
  return weights::ModelFiles::open(folder);
}

class Mxfp4On : public testing::TestWithParam<Parts> {
 protected:
  void SetUp() override {
    if (!tests::can_share(GetParam())) GTEST_SKIP() << "too few ranks";
  }
};

TEST_P(Mxfp4On, IsUnpackedToTheNumbersOfTheFiles) {
  const weights::TestFolder folder;
  const weights::ModelFiles files = write_model(folder.path() / "model");
  LoadedModel model(architecture(), table_of(GetParam().ep), GetParam(), world(), files);
  int num_packed = 0;
  for (int row = 0; row < static_cast<int>(model.whole.rows.size()); ++row) {
    const model::Parameter& own = model.table.row(row);
    if (own.packing.is_dense()) continue;
    ++num_packed;
    if (own.count() == 0) continue;
    const int unit = model.shards.unit_of(row);
    model.shards.open(unit);
    const at::Tensor expected = own_part(own, base_weight(files, model.whole.row(row)));
    EXPECT_GT(expected.abs().max().item<float>(), 1);
    // Numbers of so few bits are the same in bf16.
    EXPECT_TRUE(at::equal(model.shards.weight({row, 1}).to(at::kFloat), expected)) << own.name;
    model.shards.close(unit);
  }
  EXPECT_EQ(num_packed, 2);
}

TEST_P(Mxfp4On, HasTheHashOfItsFiles) {
  const weights::TestFolder folder;
  const weights::ModelFiles files = write_model(folder.path() / "model");
  const LoadedModel mine(architecture(), table_of(GetParam().ep), GetParam(), world(), files);
  EXPECT_EQ(frozen_hash(mine.shards),
            frozen_hash(files, table_of(GetParam().ep), core::DType::bf16));
}

INSTANTIATE_TEST_SUITE_P(Parts, Mxfp4On,
                         testing::Values(Parts{}, Parts{.tp = 2}, Parts{.ep = 2},
                                         Parts{.tp = 2, .ep = 2}));

/// A tensor of experts and its two tensors in a file.
struct Written {
  model::Parameter row{
      .name = "e", .shape = {2, 64, 3}, .role = model::Role::expert, .packing = {}};
  std::vector<std::uint8_t> codes = std::vector<std::uint8_t>(192, 0x21);
  std::vector<std::uint8_t> exponents = std::vector<std::uint8_t>(12, 127);

  weights::ModelFiles in(const weights::TestFolder& folder) const {
    const std::string data(reinterpret_cast<const char*>(codes.data()), codes.size());
    const std::string scales(reinterpret_cast<const char*>(exponents.data()), exponents.size());
    const core::Json header = {
        {"e_blocks",
         {{"dtype", "U8"}, {"shape", {2, 3, 2, 16}}, {"data_offsets", {0, codes.size()}}}},
        {"e_scales",
         {{"dtype", "U8"},
          {"shape", {2, 3, 2}},
          {"data_offsets", {codes.size(), codes.size() + exponents.size()}}}}};
    folder.put("model.safetensors", weights::file_of(header.dump(), data + scales));
    return weights::ModelFiles::open(folder.path());
  }
};

TEST(Mxfp4Files, HaveTheInputsOfAnOutputNextToEachOther) {
  Written written;
  written.exponents[2] = 128;        // of expert 0 and output 1 the inputs 0 to 31
  written.codes[16 * 7 + 1] = 0x9F;  // of expert 1 and output 0 the inputs 34 and 35
  const weights::TestFolder folder;
  const auto files = written.in(folder);
  ASSERT_TRUE(is_mxfp4_in(files, written.row));
  std::vector<float> values(384);
  Mxfp4Reader(files).read(written.row, 0, values);
  const auto at = [&](int expert, int input, int output) {
    return values[static_cast<std::size_t>((expert * 64 + input) * 3 + output)];
  };
  EXPECT_EQ(at(0, 0, 0), 0.5f);
  EXPECT_EQ(at(0, 1, 0), 1.0f);
  EXPECT_EQ(at(0, 0, 1), 1.0f);
  EXPECT_EQ(at(0, 31, 1), 2.0f);
  EXPECT_EQ(at(0, 32, 1), 0.5f);
  EXPECT_EQ(at(1, 34, 0), -6.0f);
  EXPECT_EQ(at(1, 35, 0), -0.5f);
}

TEST(Mxfp4Files, NameAnExponentWithoutFiniteNumbers) {
  Written written;
  written.exponents[7] = 255;
  const weights::TestFolder folder;
  const auto files = written.in(folder);
  std::vector<float> values(384);
  const auto thrown = thrown_by([&] { Mxfp4Reader(files).read(written.row, 0, values); });
  EXPECT_EQ(thrown.kind, core::ErrorKind::input);
  EXPECT_TRUE(thrown.says("e_scales has the exponent 255 at element 7")) << thrown.message;
}

TEST(Mxfp4Files, RefuseInputsThatAreNoWholeBlocks) {
  model::ParameterTable table = models::gpt::gpt_oss().describe([] {
    model::Architecture a = architecture();
    a.experts.d_ff = 80;
    return a;
  }());
  const auto thrown = thrown_by([&] { model::mark_packed(quantization, "m/config.json", table); });
  EXPECT_EQ(thrown.kind, core::ErrorKind::input);
  EXPECT_TRUE(thrown.says("its 80 inputs are no multiple of 32 that share a scale"))
      << thrown.message;
}

TEST(Mxfp4Files, LackTheirScales) {
  const weights::TestFolder folder;
  const weights::ModelFiles files = write_model(folder.path() / "model");
  model::ParameterTable table = table_of(1);
  for (model::Parameter& row : table.rows)
    if (row.role == model::Role::expert) row.name += "_of_another_model";
  const auto thrown = thrown_by([&] { require_same_model(files, architecture(), table); });
  EXPECT_EQ(thrown.kind, core::ErrorKind::input);
  EXPECT_TRUE(thrown.says("gate_up_proj_of_another_model_scales")) << thrown.message;
}

}  // namespace
}  // namespace finetune::base::mxfp4_files_test
