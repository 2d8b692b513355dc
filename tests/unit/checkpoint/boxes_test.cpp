// SPDX-License-Identifier: Apache-2.0
// Tensors cut into boxes, as ranks of a tensor-parallel axis hold them, go through files and come
// back in any other cut.
#include <gtest/gtest.h>

#include "checkpoint/format/read.hpp"
#include "checkpoint/load/find.hpp"
#include "checkpoint/load/load.hpp"
#include "checkpoint/save/save.hpp"
#include "checkpoint/verify/verify.hpp"
#include "comm/agree.hpp"
#include "support/ranks.hpp"
#include "unit/checkpoint/support.hpp"

namespace finetune::checkpoint::boxes_test {
namespace {

using finetune::tests::world;
using tests::Grid;
using tests::SharedFolder;
using tests::TestTensor;

/// Rows shorter and longer than a block of 64 bytes, sizes that divide by nothing, a scalar.
std::vector<TestTensor> model() {
  using core::DType;
  return {{"param", "columns", {7, 50}, DType::f32},   {"param", "experts", {3, 5, 6}, DType::bf16},
          {"param", "narrow", {30, 3}, DType::f32},    {"param", "norm", {11}, DType::f32},
          {"param", "scale", {}, DType::f32},          {"param", "wide", {4, 300}, DType::u8},
          {"exp_avg", "columns", {7, 50}, DType::f64}, {"exp_avg", "norm", {11}, DType::f32}};
}

FoundCheckpoint save_as(const Grid& grid, const std::filesystem::path& root, std::int64_t step) {
  tests::Shard shard = tests::cut(model(), grid, world().rank(), world().size());
  tests::fill(model(), shard, step);
  save(world(), world(), 0, root, step, {{"step", step}}, shard.stored(), {.block_bytes = 64});
  return *find(world(), root, "auto");
}

TEST(Boxes, AnyCutReadsWhatAnyOtherWrote) {
  const Grid grids[] = {{{}, 1},     {{2}, 1},       {{1, 2}, 1}, {{1, 4}, 3},
                        {{3, 2}, 2}, {{1, 1, 2}, 1}, {{}, 5}};
  const SharedFolder folder(world());
  std::int64_t step = 0;
  for (const Grid& written : grids) {
    const FoundCheckpoint found = save_as(written, folder.path(), ++step);
    EXPECT_EQ(verify(found.folder).problems, std::vector<std::string>());
    for (const Grid& wanted : grids) {
      tests::Shard shard = tests::cut(model(), wanted, world().rank(), world().size());
      const LoadReport report = load(world(), found, shard.wanted());
      EXPECT_EQ(tests::wrong_bytes(model(), shard, step), 0);
      EXPECT_EQ(report.bytes_read, found.manifest.payload_bytes());
    }
  }
}

TEST(Boxes, EveryRankMayWantColumnsThatShareTheirBlocks) {
  const SharedFolder folder(world());
  const FoundCheckpoint found = save_as({{}, 3}, folder.path(), 1);
  const int ranks = 2 * world().size();  // each rank plays two
  for (int rank = world().rank(); rank < ranks; rank += world().size()) {
    tests::Shard shard = tests::cut(model(), {{1, ranks}, 1}, rank, ranks);
    const LoadReport report = load(world(), found, shard.wanted());
    EXPECT_EQ(tests::wrong_bytes(model(), shard, 1), 0);
    EXPECT_LE(report.bytes_read, found.manifest.payload_bytes());
  }
}

TEST(Boxes, ABoxIsOneSliceHoweverManyRowsItHas) {
  const SharedFolder folder(world());
  const std::vector<TestTensor> tall = {{"param", "o_proj", {1000, 16}, core::DType::f32}};
  tests::Shard shard = tests::cut(tall, {{1, 4}, 1}, world().rank(), world().size());
  tests::fill(tall, shard, 1);
  save(world(), world(), 0, folder.path(), 1, {}, shard.stored(), {.block_bytes = 64});
  const FoundCheckpoint found = *find(world(), folder.path(), "auto");
  EXPECT_EQ(found.manifest.boxes.size(), 4u);
  EXPECT_EQ(found.manifest.extents.size(), 4u);
}

TEST(Boxes, OnlyBlocksWithWantedElementsAreRead) {
  const SharedFolder folder(world());
  // A row has four blocks, of which the second is wanted.
  const std::vector<TestTensor> rows = {{"param", "w", {8, 64}, core::DType::f32}};
  tests::Shard whole = tests::cut(rows, Grid(), world().rank(), world().size());
  tests::fill(rows, whole, 1);
  save(world(), world(), 0, folder.path(), 1, {}, whole.stored(), {.block_bytes = 64});
  tests::Shard columns;
  if (world().is_root()) {
    columns.kinds = {"param"};
    columns.slices = {{"w", {8, 64}, core::DType::f32, 0, 128, core::Box{{0, 16}, {8, 16}}}};
    columns.data = {std::vector<std::byte>(512)};
  }
  const LoadReport report = load(world(), *find(world(), folder.path(), "auto"), columns.wanted());
  EXPECT_EQ(tests::wrong_bytes(rows, columns, 1), 0);
  EXPECT_EQ(report.bytes_read, 8 * 64);
}

TEST(Boxes, RunsOfWholeTensorsAreReadFromBoxes) {
  const SharedFolder folder(world());
  std::vector<float> values(60);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(i);
  const std::vector<std::int64_t> shape = {10, 6};
  std::vector<float> left, right;
  for (std::size_t i = 0; i < values.size(); ++i)
    (i % 6 < 2 ? left : right).push_back(values[i]);
  std::vector<StoredSlice> stored;
  if (world().is_root()) {
    stored = {{"param",
               {"w", shape, core::DType::f32, 0, 20, core::Box{{0, 0}, {10, 2}}},
               reinterpret_cast<const std::byte*>(left.data())},
              {"param",
               {"w", shape, core::DType::f32, 0, 40, core::Box{{0, 2}, {10, 4}}},
               reinterpret_cast<const std::byte*>(right.data())}};
  }
  save(world(), world(), 0, folder.path(), 1, {}, stored, {.block_bytes = 64});
  std::vector<float> piece(41);
  read_tensor(open(folder.path()), "param", "w", 9, piece);
  EXPECT_EQ(piece, std::vector<float>(values.begin() + 9, values.begin() + 50));
}

TEST(Boxes, BoxesThatOverlapOrLieOutsideAreABug) {
  const SharedFolder folder(world());
  const std::vector<std::byte> data(100);
  const auto outcome = [&](const core::Box& box) {
    std::vector<StoredSlice> stored;
    const std::vector<std::int64_t> shape = {4, 6};
    if (world().is_root())
      stored.push_back(
          {"param", {"w", shape, core::DType::u8, 0, 12, core::Box{{0, 0}, {4, 3}}}, data.data()});
    if (world().rank() == world().size() - 1)
      stored.push_back({"param", {"w", shape, core::DType::u8, 0, 12, box}, data.data()});
    try {
      save(world(), world(), 0, folder.path(), 1, {}, stored);
    } catch (const comm::AgreedError& error) {
      return error.exit_code();
    }
    return 0;
  };
  EXPECT_EQ(outcome({{0, 3}, {4, 3}}), 0);
  EXPECT_EQ(outcome({{0, 2}, {4, 3}}), 70);
  EXPECT_EQ(outcome({{1, 3}, {4, 3}}), 70);
  EXPECT_EQ(outcome({{0, 4}, {4, 2}}), 70);
  EXPECT_EQ(outcome({{0}, {12}}), 70);
}

}  // namespace
}  // namespace finetune::checkpoint::boxes_test
