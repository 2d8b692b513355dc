// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "checkpoint/format/read.hpp"
#include "checkpoint/load/find.hpp"
#include "checkpoint/load/load.hpp"
#include "checkpoint/save/save.hpp"
#include "checkpoint/verify/verify.hpp"
#include "comm/agree.hpp"
#include "core/dtype.hpp"
#include "support/ranks.hpp"
#include "unit/checkpoint/support.hpp"

namespace finetune::checkpoint::save_load_test {
namespace {

namespace fs = std::filesystem;
using finetune::tests::world;
using tests::SharedFolder;

/// What all ranks threw, as (exit code, message); (0, "") if they did not.
template <typename F>
std::pair<int, std::string> outcome(F&& f) {
  try {
    f();
  } catch (const comm::AgreedError& error) {
    return {error.exit_code(), error.what()};
  }
  return {0, ""};
}

/// Loads `m` shards, dealt out to the ranks; returns the number of wrong bytes.
std::int64_t load_as(int m, const FoundCheckpoint& found,
                     const std::vector<tests::TestTensor>& model) {
  std::vector<tests::Shard> shards;
  for (int i = world().rank(); i < m; i += world().size())
    shards.push_back(tests::cut(model, i, m));
  std::vector<WantedSlice> wanted;
  for (tests::Shard& shard : shards) {
    const auto more = shard.wanted();
    wanted.insert(wanted.end(), more.begin(), more.end());
  }
  load(world(), found, wanted);
  std::int64_t wrong = 0;
  for (const tests::Shard& shard : shards)
    wrong += tests::wrong_bytes(model, shard, found.step);
  return wrong;
}

/// What is in `folder` once all ranks are here. Collective on the world.
std::vector<std::string> list_names(const fs::path& folder) {
  world().barrier();
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    names.push_back(entry.path().filename());
  world().barrier();
  return names;
}

TEST(SaveLoad, AnyNumberOfShardsReadsWhatTheseRanksWrote) {
  const SharedFolder folder(world());
  const auto model = tests::uneven_model();
  const SaveReport report = tests::save_model(world(), folder.path(), 12, model);
  EXPECT_EQ(report.folder, folder.path() / "step-0000000012");
  const auto found = find(world(), folder.path(), "auto");
  EXPECT_TRUE(found.has_value());
  if (!found) return;  // on every rank alike
  EXPECT_EQ(found->step, 12);
  EXPECT_EQ(found->state.step, 12);
  for (const int m : {1, 2, 3, 4, 5, 8, 40})
    EXPECT_EQ(load_as(m, *found, model), 0) << m << " shards";
}

TEST(SaveLoad, VerifiesAndKeepsOthersOut) {
  const SharedFolder folder(world());
  const SaveReport report =
      tests::save_model(world(), folder.path() / "new", 3, tests::uneven_model());
  const Verification result = verify(folder.path() / "new");
  EXPECT_EQ(result.problems, std::vector<std::string>());
  EXPECT_EQ(std::ssize(result.checkpoints), 1);
  EXPECT_EQ(result.num_tensors, 15);
  struct stat status = {};
  ::stat(report.folder.c_str(), &status);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
  for (const auto& entry : fs::directory_iterator(report.folder)) {
    ::stat(entry.path().c_str(), &status);
    EXPECT_EQ(status.st_mode & 0777, 0600u) << entry.path();
  }
}

TEST(SaveLoad, OneFileARankHoldsTheSameTensors) {
  const SharedFolder folder(world());
  const auto model = tests::uneven_model();
  const tests::Shard shard = tests::filled(model, world().rank(), world().size(), 5);
  const SaveReport report = save(world(), world(), 0, folder.path(), 5, {}, shard.stored(),
                                 {.files = Files::rank, .block_bytes = 64});
  for (int rank = 0; rank < world().size(); ++rank)
    EXPECT_TRUE(fs::exists(report.folder / file_name(Files::rank, rank)));
  const auto found = find(world(), folder.path(), "step-0000000005");
  EXPECT_EQ(load_as(3, *found, model), 0);
}

TEST(SaveLoad, EachNodeHasAFileOfItsOwn) {
  const SharedFolder folder(world());
  const auto model = tests::uneven_model();
  const int node_index = world().rank() % 2;
  const comm::Communicator node = world().split(node_index, world().rank(), "node");
  const tests::Shard shard = tests::filled(model, world().rank(), world().size(), 5);
  const SaveReport report =
      save(world(), node, node_index, folder.path(), 5, {}, shard.stored(), {.block_bytes = 64});
  const auto found = find(world(), folder.path(), "auto");
  EXPECT_EQ(std::ssize(found->manifest.files), std::min(2, world().size()));
  EXPECT_EQ(load_as(3, *found, model), 0);
  EXPECT_EQ(verify(report.folder).problems, std::vector<std::string>());
}

TEST(SaveLoad, EachByteIsReadOnceWhereShardsEndAtBlocks) {
  const SharedFolder folder(world());
  const std::vector<tests::TestTensor> model = {{"param", "w", {48, 16}, core::DType::f32}};
  tests::save_model(world(), folder.path(), 1, model);
  const auto found = find(world(), folder.path(), "auto");
  tests::Shard shard = tests::cut(model, world().rank(), world().size());  // 48 rows of one block
  const LoadReport report = load(world(), *found, shard.wanted());
  EXPECT_EQ(report.bytes_wanted, 48 * 64);
  EXPECT_EQ(report.bytes_read, 48 * 64);
}

TEST(SaveLoad, EachByteIsReadOnceWhereRanksShareBlocksOrWantTheSame) {
  const SharedFolder folder(world());
  const std::vector<tests::TestTensor> model = {{"param", "w", {101, 7}, core::DType::f32},
                                                {"param", "v", {997}, core::DType::bf16}};
  const SaveReport report = tests::save_model(world(), folder.path(), 1, model);
  const auto found = find(world(), folder.path(), "auto");
  // In five shards, of which one rank may have several; whole, on every rank; and on the last
  // alone.
  const int last = world().size() - 1;
  for (const int num_shards : {5, 1, 0}) {
    tests::Shard shard;
    for (int i = world().rank(); i < num_shards; i += world().size()) {
      const tests::Shard more = tests::cut(model, i, num_shards);
      shard.kinds.insert(shard.kinds.end(), more.kinds.begin(), more.kinds.end());
      shard.slices.insert(shard.slices.end(), more.slices.begin(), more.slices.end());
      shard.data.insert(shard.data.end(), more.data.begin(), more.data.end());
    }
    if (num_shards == 1 || (num_shards == 0 && world().rank() == last))
      shard = tests::cut(model, 0, 1);
    const LoadReport loaded = load(world(), *found, shard.wanted());
    EXPECT_EQ(loaded.bytes_read, report.payload_bytes) << num_shards;
    EXPECT_EQ(tests::wrong_bytes(model, shard, 1), 0) << num_shards;
  }
}

TEST(SaveLoad, ConvertsBetweenFloatingDtypes) {
  const SharedFolder folder(world());
  const float value = 1.0f + 1.0f / 128 + 1.0f / 65536;
  const StoredSlice stored{"param",
                           {"w", {1}, core::DType::f32, 0, world().is_root() ? 1 : 0},
                           reinterpret_cast<const std::byte*>(&value)};
  save(world(), world(), 0, folder.path(), 1, {}, std::span(&stored, 1));
  const auto found = find(world(), folder.path(), "auto");
  std::uint16_t narrow = 0;
  const WantedSlice wanted{
      "param", {"w", {1}, core::DType::bf16, 0, 1}, reinterpret_cast<std::byte*>(&narrow)};
  load(world(), *found, std::span(&wanted, 1));
  EXPECT_EQ(narrow, core::float_to_bf16(value));
}

TEST(SaveLoad, ReadTensorConvertsAnyPieceToFloat) {
  const SharedFolder folder(world());
  std::vector<std::uint16_t> values(100);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = core::float_to_bf16(static_cast<float>(i));
  const std::int64_t run = 100 / world().size() + 1;
  const std::int64_t first = std::min<std::int64_t>(100, run * world().rank());
  const core::TensorSlice slice{
      "w", {100}, core::DType::bf16, first, std::min<std::int64_t>(run, 100 - first)};
  const StoredSlice stored{"param", slice,
                           reinterpret_cast<const std::byte*>(values.data() + first)};
  save(world(), world(), 0, folder.path(), 1, {}, std::span(&stored, 1), {.block_bytes = 64});
  const FoundCheckpoint found = open(folder.path() / "step-0000000001");
  std::vector<float> piece(50);
  read_tensor(found, "param", "w", 31, piece);
  for (std::size_t i = 0; i < piece.size(); ++i)
    EXPECT_EQ(piece[i], static_cast<float>(31 + i));
  EXPECT_THROW(read_tensor(found, "param", "other", 0, piece), core::Error);
}

TEST(SaveLoad, RefusesAnotherDtypeShapeOrName) {
  const SharedFolder folder(world());
  const std::vector<tests::TestTensor> model = {{"param", "w", {7, 3}, core::DType::f32}};
  tests::save_model(world(), folder.path(), 1, model);
  const auto found = find(world(), folder.path(), "auto");
  const auto load_like = [&](const tests::TestTensor& other) {
    // Only the last rank asks for something else: all of them refuse.
    const bool differs = world().rank() == world().size() - 1;
    tests::Shard shard = tests::cut(differs ? std::vector{other} : model, 0, 1);
    return outcome([&] { load(world(), *found, shard.wanted()); });
  };
  EXPECT_EQ(load_like(model[0]).first, 0);
  const auto dtype = load_like({"param", "w", {7, 3}, core::DType::i32});
  EXPECT_EQ(dtype.first, 78);
  EXPECT_NE(dtype.second.find("param w is F32 [7, 3] (this run needs I32 [7, 3])"),
            std::string::npos)
      << dtype.second;
  EXPECT_EQ(load_like({"param", "w", {3, 7}, core::DType::f32}).first, 78);
  EXPECT_EQ(load_like({"param", "v", {7, 3}, core::DType::f32}).first, 78);
  EXPECT_EQ(load_like({"exp_avg", "w", {7, 3}, core::DType::f32}).first, 78);
}

TEST(SaveLoad, AFailedSaveThrowsEverywhereAndLeavesTheOlderCheckpointAlone) {
  const SharedFolder folder(world());
  const auto model = tests::uneven_model();
  tests::save_model(world(), folder.path(), 1, model);
  // The last rank's slice lies beyond its tensor; then one element is missing; then one is double.
  for (const std::int64_t offset : {9, 1, -1}) {
    const bool is_last = world().rank() == world().size() - 1;
    const std::vector<std::byte> data(100);
    const core::TensorSlice slice{"w", {8}, core::DType::u8, 0, 8};
    std::vector<StoredSlice> stored;
    if (world().is_root()) stored = {{"param", slice, data.data()}};
    if (is_last && offset == 9) stored = {{"param", slice, data.data()}};
    if (is_last && offset == 9) stored[0].slice.offset = 9;
    if (world().is_root() && offset == 1) stored[0].slice = {"w", {8}, core::DType::u8, 1, 7};
    if (is_last && offset == -1)
      stored.push_back({"param", {"w", {8}, core::DType::u8, 3, 1}, data.data()});
    const auto result = outcome([&] { save(world(), world(), 0, folder.path(), 2, {}, stored); });
    EXPECT_EQ(result.first, 70) << result.second;
  }
  EXPECT_EQ(list_names(folder.path()), std::vector<std::string>{"step-0000000001"});
  const auto found = find(world(), folder.path(), "auto");
  EXPECT_EQ(load_as(2, *found, model), 0);
}

TEST(SaveLoad, AWriteErrorOnOneRankFailsTheSaveOnAll) {
  const SharedFolder folder(world());
  const std::vector<tests::TestTensor> model = {{"param", "w", {4096}, core::DType::f32}};
  tests::save_model(world(), folder.path(), 1, model);
  // The last rank may not write beyond a file's first bytes: alone it fails to make the skeleton,
  // beside others to write its slice.
  const bool is_last = world().rank() == world().size() - 1;
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit before = {};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit tight = {1000, before.rlim_max};
  if (is_last) ::setrlimit(RLIMIT_FSIZE, &tight);
  const auto result = outcome([&] { tests::save_model(world(), folder.path(), 2, model); });
  if (is_last) ::setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(result.first, 74) << result.second;
  EXPECT_NE(result.second.find("File too large"), std::string::npos) << result.second;
  EXPECT_NE(result.second.find("ulimit -f"), std::string::npos) << result.second;
  EXPECT_EQ(list_names(folder.path()), std::vector<std::string>{"step-0000000001"});
  EXPECT_EQ(load_as(2, *find(world(), folder.path(), "auto"), model), 0);
}

TEST(SaveLoad, AFolderThatCannotBeMadeIsExitCode73) {
  // Not even root can make folders there.
  const auto result = outcome(
      [&] { tests::save_model(world(), "/proc/finetune-checkpoint", 1, tests::uneven_model()); });
  EXPECT_EQ(result.first, 73) << result.second;
  EXPECT_TRUE(result.second.starts_with("/proc/finetune-checkpoint: cannot be created ("))
      << result.second;
}

TEST(SaveLoad, SavingAStepAgainReplacesIt) {
  const SharedFolder folder(world());
  const std::vector<tests::TestTensor> old_model = {{"param", "w", {7}, core::DType::f32}};
  const auto model = tests::uneven_model();
  tests::save_model(world(), folder.path(), 4, old_model);
  tests::save_model(world(), folder.path(), 4, model);
  EXPECT_EQ(load_as(2, *find(world(), folder.path(), "auto"), model), 0);
  EXPECT_EQ(list_names(folder.path()), std::vector<std::string>{"step-0000000004"});
}

TEST(SaveLoad, GoesOnToTheOlderCheckpointWhenDataOfTheNewestAreDamaged) {
  const SharedFolder folder(world());
  const auto model = tests::uneven_model();
  tests::save_model(world(), folder.path(), 1, model);
  const SaveReport newest = tests::save_model(world(), folder.path(), 2, model);
  const FoundCheckpoint before = open(newest.folder);
  if (world().is_root())
    tests::flip_bit(newest.folder / "node00000.h5", before.manifest.extents[0].position + 3, 5);
  world().barrier();

  tests::Shard shard = tests::cut(model, world().rank(), world().size());
  testing::internal::CaptureStderr();
  const auto found =
      find_and_load(world(), {folder.path(), "auto"}, [&] { return shard.wanted(); });
  const std::string warnings = testing::internal::GetCapturedStderr();
  EXPECT_EQ(found->step, 1);
  EXPECT_EQ(tests::wrong_bytes(model, shard, 1), 0);
  if (world().is_root()) {
    EXPECT_TRUE(warnings.starts_with("warning: step-0000000002 is skipped: ")) << warnings;
    EXPECT_NE(warnings.find("node00000.h5: block 0 of exp_avg embed.weight"), std::string::npos)
        << warnings;
    EXPECT_EQ(std::count(warnings.begin(), warnings.end(), '\n'), 1) << warnings;
  }
  // Asked for by name there is no other.
  const auto named = outcome([&] {
    find_and_load(world(), {folder.path(), "step-0000000002"}, [&] { return shard.wanted(); });
  });
  EXPECT_EQ(named.first, 65) << named.second;
}

}  // namespace
}  // namespace finetune::checkpoint::save_load_test
