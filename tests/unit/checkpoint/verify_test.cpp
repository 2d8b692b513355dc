// SPDX-License-Identifier: Apache-2.0
// What `verify` says about checkpoints whose checksums are right.
#include "checkpoint/verify/verify.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "checkpoint/load/find.hpp"
#include "unit/checkpoint/support.hpp"

namespace finetune::checkpoint::verify_test {
namespace {

constexpr float nan = std::numeric_limits<float>::quiet_NaN();

/// Saves one tensor of a kind, blocks of 64 bytes, in two slices: 20 elements and the rest.
std::filesystem::path save_values(const std::filesystem::path& root, std::int64_t step,
                                  const std::string& kind, const std::vector<float>& values,
                                  core::Json state = core::Json::object()) {
  const auto count = static_cast<std::int64_t>(values.size());
  const auto* data = reinterpret_cast<const std::byte*>(values.data());
  const std::vector<StoredSlice> slices = {
      {kind, {"w", {count}, core::DType::f32, 0, 20}, data},
      {kind, {"w", {count}, core::DType::f32, 20, count - 20}, data + 80}};
  return save({}, {}, 0, root, step, state, slices, {.block_bytes = 64}).folder;
}

void expect_one_problem(const Verification& result, const std::string& end) {
  ASSERT_EQ(result.problems.size(), 1u);
  EXPECT_NE(result.problems[0].find("step-0000000003/node00000.h5: " + end), std::string::npos)
      << result.problems[0];
  EXPECT_EQ(result.checkpoints.at(0).num_problems, 1);
}

TEST(Verify, NamesFileBlockTensorAndElementOfTheFirstThatIsNotFinite) {
  const tests::SharedFolder folder;
  std::vector<float> values(60, 1);
  values[37] = nan;  // in the second slice: byte 68 of it
  values[59] = std::numeric_limits<float>::infinity();
  save_values(folder.path(), 3, "master", values);
  expect_one_problem(verify(folder.path()),
                     "block 1 of master w from element 20 on holds nan as element 37, the first "
                     "of 2 that are not finite (");
}

TEST(Verify, InABoxTheElementIsThatOfTheTensor) {
  const tests::SharedFolder folder;
  std::vector<float> left(6 * 20, 1);
  std::vector<float> right(6 * 10, 1);
  right[37] = nan;  // row 3, column 20 + 7; byte 148 of the box
  const auto slice = [](std::int64_t begin, std::int64_t columns) {
    return core::TensorSlice{"w", {6, 30},     core::DType::f32,
                             0,   6 * columns, core::Box{{0, begin}, {6, columns}}};
  };
  const std::vector<StoredSlice> slices = {
      {"master", slice(0, 20), reinterpret_cast<const std::byte*>(left.data())},
      {"master", slice(20, 10), reinterpret_cast<const std::byte*>(right.data())}};
  save({}, {}, 0, folder.path(), 3, core::Json::object(), slices, {.block_bytes = 64});
  expect_one_problem(verify(folder.path()),
                     "block 2 of master w from element 20 on holds nan as element 117 (");
}

TEST(Verify, AMeanOfSquaresIsNotNegative) {
  const tests::SharedFolder folder;
  std::vector<float> values(60, 1);
  values[2] = -1;
  save_values(folder.path(), 3, "exp_avg_sq", values);
  const std::vector<std::string> unsigned_kinds = {"exp_avg_sq"};
  expect_one_problem(
      verify(folder.path(), unsigned_kinds),
      "block 0 of exp_avg_sq w from element 0 on holds -1 as element 2 (a run never");
  save_values(folder.path(), 3, "exp_avg", values);
  EXPECT_TRUE(verify(folder.path(), unsigned_kinds).problems.empty());
}

TEST(Verify, ADamagedBlockIsNotTakenForNumbers) {
  const tests::SharedFolder folder;
  const auto path = save_values(folder.path(), 3, "master", std::vector<float>(60, 1));
  const FoundCheckpoint found = open(path);
  // The lowest exponent bits of 1.0f: setting the highest one as well makes it infinite.
  tests::flip_bit(path / "node00000.h5", found.manifest.extents[0].position + 3, 6);
  const Verification result = verify(path);
  expect_one_problem(result, "block 0 of master w from element 0 on is damaged (its CRC32C");
  EXPECT_DOUBLE_EQ(result.checkpoints[0].kinds[0].norm, std::sqrt(60 - 16));
}

TEST(Verify, SumsUpEachKind) {
  const tests::SharedFolder folder;
  tests::save_model({}, folder.path(), 1, tests::uneven_model());
  const Verification result = verify(folder.path());
  EXPECT_TRUE(result.problems.empty());
  const auto& kinds = result.checkpoints.at(0).kinds;
  ASSERT_EQ(kinds.size(), 3u);
  EXPECT_EQ(kinds[0].kind, "exp_avg");
  EXPECT_EQ(kinds[0].num_tensors, 2);
  EXPECT_EQ(kinds[0].bytes, 2 * (37 * 3 + 7));
  EXPECT_EQ(kinds[2].kind, "param");
  EXPECT_EQ(kinds[2].num_tensors, 5);
  EXPECT_EQ(kinds[2].bytes, 4 * (37 * 3 + 7 + 1 + 1));
  EXPECT_EQ(result.bytes, result.checkpoints[0].bytes);

  std::vector<float> values(60, 0);
  values[0] = 3;
  values[59] = -4;
  save_values(folder.path(), 2, "master", values);
  EXPECT_EQ(verify(folder.path()).checkpoints.at(0).kinds.at(0).norm, 5);
}

TEST(Verify, TellsOfEachCheckpointInAFolder) {
  const tests::SharedFolder folder;
  const std::vector<float> good(60, 1);
  save_values(folder.path(), 10, "master", good, {{"validation_loss", 1.5}});
  save_values(folder.path(), 20, "master", std::vector<float>(60, nan));
  save_values(folder.path(), 30, "master", good, {{"validation_loss", "none"}});
  std::filesystem::remove(folder.path() / "step-0000000030/node00000.h5");
  const Verification result = verify(folder.path());
  ASSERT_EQ(result.checkpoints.size(), 3u);
  EXPECT_EQ(result.problems.size(), 2u);
  EXPECT_EQ(result.checkpoints[0].step, 30);
  EXPECT_EQ(result.checkpoints[0].num_problems, 1);
  EXPECT_FALSE(result.checkpoints[0].validation_loss);
  EXPECT_EQ(result.checkpoints[1].num_problems, 1);
  EXPECT_EQ(result.checkpoints[2].num_problems, 0);
  EXPECT_EQ(result.checkpoints[2].validation_loss, 1.5);
  EXPECT_GT(result.checkpoints[2].bytes, 240);
}

TEST(Verify, ManyPiecesAndBlocksGiveTheSameSumsAgain) {
  // 5 MiB: several reads a piece. Values whose sum depends on its order.
  const tests::SharedFolder folder;
  std::vector<float> values(5 * (1 << 18) + 3);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = 1.0f / static_cast<float>(i + 1);
  const auto path = save_values(folder.path(), 3, "master", values);
  const Verification first = verify(path);
  EXPECT_TRUE(first.problems.empty());
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(verify(path).checkpoints.at(0).kinds.at(0).norm, first.checkpoints[0].kinds[0].norm);
  // Every damaged block by itself, in order.
  const FoundCheckpoint found = open(path);
  for (const std::int64_t block : {3, 4, 70000})
    tests::flip_bit(path / "node00000.h5", found.manifest.extents[1].position + 64 * block, 0);
  const auto problems = verify(path).problems;
  ASSERT_EQ(problems.size(), 3u);
  EXPECT_NE(problems[0].find("block 3 of master w from element 20 on"), std::string::npos);
  EXPECT_NE(problems[2].find("block 70000 of master w from element 20 on"), std::string::npos);
}

TEST(Verify, SaysWhichAreOfOtherBranches) {
  const tests::SharedFolder folder;
  const std::vector<float> values(60, 1);
  const auto state = [](const char* id, std::int64_t branch) {
    return core::Json{{"run_id", id}, {"lineage", {{"branch", branch}}}};
  };
  save_values(folder.path(), 5, "master", values, state("old", 0));
  save_values(folder.path(), 3, "master", values, state("new", 1));
  const Verification result = verify(folder.path());
  EXPECT_TRUE(result.problems.empty());
  ASSERT_EQ(result.checkpoints.size(), 2u);
  EXPECT_EQ(result.checkpoints[0].other_branch, "run old");
  EXPECT_EQ(result.checkpoints[1].other_branch, "");
  EXPECT_EQ(result.other_branches, "run old (step-0000000005)");
}

}  // namespace
}  // namespace finetune::checkpoint::verify_test
