// SPDX-License-Identifier: Apache-2.0
// Trained units that are gathered in 8 bits, on as many ranks as there are.
#include <gtest/gtest.h>

#include "model/fp8.hpp"
#include "model/fp8_products.hpp"
#include "plan/layout/bucket.hpp"
#include "plan/layout/fp8_layout.hpp"
#include "support/ranks.hpp"
#include "support/shards.hpp"

namespace finetune::shard::fp8_unit_test {
namespace {

using model::Fp8Scaling;

/// A block of two products, biases and norms: their elements are spread over any number of ranks.
model::ParameterTable table_of(Fp8Scaling scaling, std::int64_t size) {
  model::ParameterTable table{
      .rows = {{.name = "norm", .shape = {size}, .unit = 0, .decayed = false},
               {.name = "q", .shape = {2 * size, size}, .unit = 0, .role = model::Role::linear},
               {.name = "k", .shape = {size, size}, .unit = 0, .role = model::Role::linear},
               {.name = "v", .shape = {size, size}, .unit = 0, .role = model::Role::linear},
               {.name = "bias", .shape = {3}, .unit = 0, .decayed = false},
               {.name = "o", .shape = {size, 2 * size}, .unit = 0, .role = model::Role::linear},
               {.name = "head", .shape = {5, size}, .unit = 1, .role = model::Role::head}},
      .units = {"block", "head"}};
  model::BlockRows block;
  block.qkv = {1, 3};
  block.attention_out = 5;
  block.feed_forward = {.gate_up = {5, 0}, .down = -1};
  table.decoder.blocks = {block};
  model::keep_in_fp8({.scaling = scaling}, table);
  return plan::regroup(table, plan::Bucket::block);
}

/// Neighbours differ by powers of two.
float value_of(int row, std::int64_t i) {
  const float size = static_cast<float>(1 << (i * 7 % 13));
  return (i % 2 == 0 ? 1.0f : -1.0f) * size * tests::element_of(row, i % 1000);
}

at::Tensor whole(const model::Parameter& row, int i_row) {
  const at::Tensor all = at::empty(row.shape, at::kFloat);
  for (std::int64_t i = 0; i < all.numel(); ++i)
    all.data_ptr<float>()[i] = value_of(i_row, i);
  return all.to(at::kBFloat16);
}

class Units : public testing::TestWithParam<Fp8Scaling> {
 protected:
  void SetUp() override {
    sharded.for_each([](int row, std::int64_t i, float& value) { value = value_of(row, i); });
    sharded.shards.publish_all();
  }
  at::Tensor matrix_of(model::RowRange rows) const {
    std::vector<at::Tensor> all;
    for (int i = rows.first; i < rows.first + rows.num; ++i)
      all.push_back(whole(sharded.table.row(i), i));
    return at::cat(all);
  }

  tests::OddShards sharded{tests::world(), at::kBFloat16,
                           table_of(GetParam(), GetParam() == Fp8Scaling::block ? 512 : 32)};
};

TEST_P(Units, HaveTheMatricesThatOneRankRounds) {
  ModelShards& shards = sharded.shards;
  shards.open(0);
  for (const model::RowRange rows : {model::RowRange{1, 3}, {1, 1}, {2, 2}, {5, 1}}) {
    const model::Weight weight = shards.matrix(rows);
    ASSERT_TRUE(weight.quantised) << rows.first;
    const auto expected = model::quantise_matrix(matrix_of(rows), {.scaling = GetParam()});
    EXPECT_TRUE(
        at::equal(weight.quantised->values.view(at::kByte), expected.values.view(at::kByte)));
    EXPECT_TRUE(at::equal(weight.quantised->scales, expected.scales));
    EXPECT_TRUE(at::equal(shards.weight(rows), model::dequantised(expected, at::kBFloat16)));
  }
  shards.close(0);
}

TEST_P(Units, HaveOtherRowsAsTheyAreComputedWith) {
  ModelShards& shards = sharded.shards;
  shards.open(0);
  for (const int row : {0, 4})
    EXPECT_TRUE(at::equal(shards.weight({row, 1}), whole(sharded.table.row(row), row))) << row;
  shards.close(0);
  shards.open(1);
  EXPECT_FALSE(shards.matrix({6, 1}).quantised) << "of the head";
  EXPECT_TRUE(at::equal(shards.weight({6, 1}), whole(sharded.table.row(6), 6)));
  shards.close(1);
}

TEST_P(Units, SendHalfAndFollowWhatIsPublished) {
  ModelShards& shards = sharded.shards;
  EXPECT_EQ(shards.published(0).nbytes(), sharded.map.unit(0).shard_size);
  sharded.for_each([](int, std::int64_t, float& value) { value *= 4; });
  const auto before = shards.groups().fsdp->traffic().sent_bytes;
  shards.publish(0);
  const auto published = shards.groups().fsdp->traffic().sent_bytes;
  shards.open(0);
  const at::Tensor scales = shards.matrix({1, 3}).quantised->scales;
  EXPECT_TRUE(at::equal(
      scales, model::quantise_matrix(matrix_of({1, 3}) * 4, {.scaling = GetParam()}).scales));
  shards.close(0);
  shards.release(0);
  const auto gathered = shards.groups().fsdp->traffic().sent_bytes;
  const std::int64_t others = tests::world().size() - 1;
  const plan::Fp8Layout layout(sharded.table, sharded.map, 0);
  EXPECT_EQ(published - before, others * layout.message_bytes(core::DType::bf16));
  EXPECT_EQ(gathered - published, others * sharded.map.unit(0).shard_size);
}

INSTANTIATE_TEST_SUITE_P(Scalings, Units, testing::Values(Fp8Scaling::rowwise, Fp8Scaling::block),
                         [](const auto& info) {
                           return info.param == Fp8Scaling::rowwise ? "rowwise" : "block";
                         });

TEST(Units, OfMuchElseStayInTheDtypeOfTheComputation) {
  model::ParameterTable table = table_of(Fp8Scaling::rowwise, 32);
  EXPECT_FALSE(table.row(1).published.is_dense());
  table.rows[4].shape = {2000};
  model::settle_published(table);
  for (const model::Parameter& row : table.rows)
    EXPECT_TRUE(row.published.is_dense()) << row.name;
}

TEST(Units, WithPartsThatDoNotFitDoNotHaveThemIn8Bits) {
  model::ParameterTable table = table_of(Fp8Scaling::rowwise, 32);
  table.rows[2].shape[0] = 24;  // with 64 and 32 others no multiple of 16
  model::settle_published(table);
  for (const model::Parameter& row : table.rows)
    EXPECT_TRUE(row.published.is_dense()) << row.name << ": too much of the unit is not";
}

}  // namespace
}  // namespace finetune::shard::fp8_unit_test
