// SPDX-License-Identifier: Apache-2.0
// Checkpoints on disks of nodes. Each rank plays a node of its own, with a folder that only it
// uses.
#include "checkpoint/load/local.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "checkpoint/load/load.hpp"
#include "checkpoint/save/save.hpp"
#include "support.hpp"
#include "support/ranks.hpp"

namespace finetune::checkpoint::local_test {
namespace {

namespace fs = std::filesystem;
using ::finetune::tests::world;
using tests::SharedFolder;

constexpr const char* run = "run";

class Local : public testing::Test {
 protected:
  Local() : folder_(world()), node_(world().split(world().rank(), 0, "node")) {
    make_local_root(root());
  }

  fs::path root(int node) const { return folder_.path() / ("node" + std::to_string(node)); }
  fs::path root() const { return root(world().rank()); }

  void save(std::int64_t step, const std::string& run_id = run) {
    const tests::Shard shard = tests::filled(model_, world().rank(), world().size(), step);
    Writers writers{.world = world(), .node = node_, .node_index = world().rank()};
    if (world().size() > 1) writers.partner = (world().rank() + 1) % world().size();
    const auto stored = shard.stored();
    const core::Json state = {{"run_id", run_id}};
    Saving saving(writers, root(), step, state, stored,
                  {.level = Level::local,
                   .durability = {.sync = false},
                   .block_bytes = 64,
                   .retention = Retention{.newest = 2}});
    saving.finish();
  }

  std::optional<FoundCheckpoint> find_here(std::int64_t before = any_step) {
    return find_local(world(), node_, root(), run, before);
  }

  /// Wrong bytes when the ranks read it in other shards than they wrote it, -1 if it cannot be
  /// read.
  std::int64_t wrong(const std::optional<FoundCheckpoint>& found) {
    if (!found) return -1;
    tests::Shard shard = tests::cut(model_, world().size() - 1 - world().rank(), world().size());
    const LoadReport report = load(world(), *found, shard.wanted());
    EXPECT_EQ(report.bytes_read, report.bytes_wanted);
    return tests::wrong_bytes(model_, shard, found->step);
  }

  void lose(int node) {
    world().barrier();
    if (world().is_root()) fs::remove_all(root(node));
    world().barrier();
  }

  const std::vector<tests::TestTensor> model_ = {{"param", "w", {64, 12}, core::DType::f32}};
  SharedFolder folder_;
  comm::Communicator node_;
};

TEST_F(Local, EveryNodeHoldsItsFileAndItsNeighbours) {
  save(1);
  const fs::path step = root() / "step-0000000001";
  const int before = (world().rank() + world().size() - 1) % world().size();
  for (const int node : {world().rank(), before}) {
    const fs::path file = step / file_name(Files::node, node);
    EXPECT_TRUE(fs::exists(file)) << file;
    // The copy is the same file, to the byte.
    world().barrier();
    EXPECT_TRUE(tests::read_file(file) ==
                tests::read_file(root(node) / "step-0000000001" / file_name(Files::node, node)));
  }
  EXPECT_EQ(wrong(find_here()), 0);
}

TEST_F(Local, LosingANodeLosesNothing) {
  if (world().size() == 1) GTEST_SKIP() << "one node has no neighbour";
  save(1);
  save(2);
  for (int node = 0; node < world().size(); ++node) {
    save(3 + node);
    lose(node);
    const auto found = find_here();
    ASSERT_TRUE(found);
    // Two stay, although no node has all files of any.
    if (world().rank() != node) {
      EXPECT_LE(std::distance(fs::directory_iterator(root()), fs::directory_iterator()), 2);
    }
    EXPECT_EQ(found->step, 3 + node);
    EXPECT_EQ(wrong(found), 0);
  }
}

TEST_F(Local, LosingNeighboursGoesBackToWhatIsWhole) {
  if (world().size() < 3) GTEST_SKIP() << "two nodes hold each other's files";
  save(1);
  world().barrier();
  if (world().rank() < 2) fs::remove_all(root() / "step-0000000001");
  EXPECT_FALSE(find_here());
}

TEST_F(Local, AnUnfinishedOneOrAnotherRunsIsNotTaken) {
  save(2, "another run");
  save(1);
  auto found = find_here();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->step, 1);
  EXPECT_FALSE(find_here(1));
  remove_other_runs(root(), run);
  EXPECT_FALSE(fs::exists(root() / "step-0000000002"));
  // A node that died before it could give its folder the name.
  save(3);
  world().barrier();
  if (world().is_root()) fs::rename(root() / "step-0000000003", root() / ".tmp-step-0000000003.x");
  found = find_here();
  ASSERT_TRUE(found);
  const bool others_have_all = world().size() > 1;
  EXPECT_EQ(found->step, others_have_all ? 3 : 1);
  EXPECT_EQ(wrong(found), 0);
}

TEST_F(Local, TheNewestOfBothLevelsIsTaken) {
  const SharedFolder shared(world());
  tests::save_model(world(), shared.path(), 5, model_);
  const Sources sources{
      .root = shared.path(), .resume = "auto", .local_root = root(), .node = node_, .run_id = run};
  for (const std::int64_t step : {4, 6}) {
    save(step);
    tests::Shard shard = tests::cut(model_, world().rank(), world().size());
    const auto found = find_and_load(world(), sources, [&] { return shard.wanted(); });
    ASSERT_TRUE(found);
    EXPECT_EQ(found->step, std::max<std::int64_t>(step, 5));
    EXPECT_EQ(tests::wrong_bytes(model_, shard, found->step), 0);
  }
  // Damage on every node: the shared level it is.
  world().barrier();
  for (const auto& entry : fs::directory_iterator(root() / "step-0000000006")) {
    if (entry.path().extension() == ".h5")
      tests::flip_bit(entry.path(), fs::file_size(entry) - 1, 3);
  }
  world().barrier();
  tests::Shard shard = tests::cut(model_, world().rank(), world().size());
  const auto found = find_and_load(world(), sources, [&] { return shard.wanted(); });
  ASSERT_TRUE(found);
  EXPECT_EQ(found->step, 5);
  EXPECT_EQ(tests::wrong_bytes(model_, shard, 5), 0);
}

TEST_F(Local, AFolderThatOthersMayEnterIsRefused) {
  const fs::path folder = root(world().rank()) / "open";
  fs::create_directory(folder);
  fs::permissions(folder, fs::perms::group_all, fs::perm_options::add);
  EXPECT_THROW(make_local_root(folder), core::Error);
  const fs::path link = root(world().rank()) / "link";
  fs::create_directory(root(world().rank()) / "victim");
  fs::create_directory_symlink(root(world().rank()) / "victim", link);
  EXPECT_THROW(make_local_root(link), core::Error);
}

}  // namespace
}  // namespace finetune::checkpoint::local_test
