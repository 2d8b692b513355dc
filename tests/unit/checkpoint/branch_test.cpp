// SPDX-License-Identifier: Apache-2.0
// Runs that share a folder: which of them is gone on from, kept and exported.
#include "checkpoint/load/branch.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "checkpoint/format/retire.hpp"
#include "checkpoint/load/best.hpp"
#include "checkpoint/load/find.hpp"
#include "checkpoint/run_folder.hpp"
#include "checkpoint/run_state.hpp"
#include "core/error.hpp"
#include "support/errors.hpp"
#include "support/messages.hpp"
#include "unit/checkpoint/support.hpp"

namespace finetune::checkpoint::branch_test {
namespace {

namespace fs = std::filesystem;

using finetune::tests::holds_fact;
using Steps = std::vector<std::int64_t>;

const Line first{"first", {}};
// "zz" and "aa": no order of ids may be what decides.
const Line back{"aa", {.branch = 1, .parents = {{"first", 20}}, .begun_by = {"step-0000000020"}}};
const Line other{"zz", {}};

class BranchTest : public testing::Test {
 protected:
  const fs::path& root() const { return folder_.path(); }

  void save(const Line& line, std::int64_t step, double loss = 1,
            std::optional<Retention> retention = {}) {
    core::Json state = {{"run_id", line.run_id}, {"validation_loss", loss}};
    if (line.lineage.branch > 0) state["lineage"] = line.lineage.to_json();
    const std::vector<tests::TestTensor> model = {{"param", "w", {3}, core::DType::f32}};
    const tests::Shard shard = tests::filled(model, 0, 1, step);
    checkpoint::save({}, {}, 0, root(), step, state, shard.stored(),
                     {.block_bytes = 64, .retention = retention});
  }

  /// The first run up to 40, and one that went back to 20.
  void save_both() {
    for (const std::int64_t step : {10, 20, 30, 40})
      save(first, step, 0.5);
    save(back, 25);
  }

  /// As a start leaves it that goes on with `line`.
  void note(const Line& line) {
    RunFolder folder(root(), Access::owner);
    folder.continue_line(line);
    folder.begin(0, "deck", 0);
  }

  Steps steps_in(const fs::path& folder) const {
    Steps steps;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder, error))
      if (const auto step = step_of(entry.path().filename().string())) steps.push_back(*step);
    std::ranges::sort(steps);
    return steps;
  }

  std::string id_of(const fs::path& folder) const {
    return core::parse_json(tests::read_file(folder / state_name), "state").at("run_id");
  }

  std::int64_t found(const std::string& resume = "auto") const {
    const auto result = find({}, root(), resume);
    return result ? result->step : -1;
  }

  tests::SharedFolder folder_;
};

TEST_F(BranchTest, IsTheOneThatWentBackLastWhateverItsSteps) {
  save_both();
  const Branch branch = read_branch(root());
  EXPECT_EQ(branch.line.run_id, "aa");
  EXPECT_EQ(branch.steps, (Steps{25, 20, 10}));
  ASSERT_EQ(branch.others.size(), 1u);
  EXPECT_EQ(branch.others[0].where, "run first");
  EXPECT_EQ(branch.others[0].steps, (Steps{40, 30}));
  EXPECT_EQ(branch.highest, 1);
  EXPECT_EQ(found(), 25);
  testing::internal::CaptureStdout();
  EXPECT_EQ(open(root()).step, 25);
  const std::string told = testing::internal::GetCapturedStdout();
  for (const char* fact : {"first", "step-0000000040", "step-0000000030"})
    EXPECT_TRUE(holds_fact(told, fact)) << told;
  EXPECT_EQ(open_best(root()).step, 20) << "30 and 40 are of the other branch";
  EXPECT_EQ(found("step-0000000040"), 40) << "by name any";
}

TEST_F(BranchTest, GoesOnFromItsParentBeforeAnotherBranch) {
  save_both();
  fs::remove(root() / "step-0000000025/MANIFEST.json");
  note(back);
  EXPECT_EQ(read_branch(root()).steps, (Steps{25, 20, 10})) << "what cannot be read is shown";
  testing::internal::CaptureStderr();
  EXPECT_EQ(found(), 20);
  testing::internal::GetCapturedStderr();
}

TEST_F(BranchTest, WithoutAnyParentsIsThatOfTheLastStartOrTheHighestId) {
  save(first, 40);
  save(other, 30);
  save(other, 35);
  EXPECT_EQ(found(), 35);
  note(first);
  EXPECT_EQ(found(), 40);
  note({"stranger"});
  EXPECT_EQ(found(), 35) << "a start that left nothing: what lies there was put there by hand";
}

TEST_F(BranchTest, OfANoteOfAnEarlierVersionIsFoundByItsId) {
  save(first, 40);
  save(other, 30);
  tests::write_file(root() / ".run.json",
                    R"({"id": "first", "fingerprint": "", "step": 0, "starts": 1})");
  EXPECT_EQ(found(), 40);
  tests::write_file(root() / ".run.json",
                    R"({"id": "gone", "fingerprint": "", "step": 0, "starts": 1})");
  EXPECT_EQ(found(), 30);
}

TEST_F(BranchTest, RetiresItsOwnAlone) {
  save_both();
  save(back, 28, 1, Retention{.newest = 2});
  EXPECT_EQ(steps_in(root()), (Steps{25, 28, 30, 40}));
  save(back, 35, 1, Retention{.newest = 1});
  EXPECT_EQ(steps_in(root()), (Steps{30, 35, 40})) << "30 is older, and of the other branch";
}

TEST_F(BranchTest, NeverReplacesACheckpointOfAnother) {
  save_both();
  save(back, 30);
  EXPECT_EQ(id_of(root() / "step-0000000030"), "aa");
  EXPECT_EQ(id_of(root() / "branch-1/step-0000000030"), "first");
  save(back, 40);
  EXPECT_EQ(steps_in(root() / "branch-1"), (Steps{30, 40}));
  // Its own of the same step, which may be damaged, is replaced as ever.
  save(back, 40);
  EXPECT_EQ(steps_in(root()), (Steps{10, 20, 25, 30, 40}));
  // A third run does not mix its steps with those of the first.
  save(other, 40);
  EXPECT_EQ(id_of(root() / "branch-1/step-0000000040"), "first");
  EXPECT_EQ(id_of(root() / "branch-2/step-0000000040"), "aa");
}

TEST_F(BranchTest, LeavesWhatIsNotItsPast) {
  for (const std::int64_t step : {10, 20, 30, 40})
    save(first, step);
  fs::remove(root() / "step-0000000030/state.json");
  tests::write_file(root() / "metrics.jsonl", "{}\n");
  for (const char* step : {"step-0000000020", "step-0000000035", "step-0000000040"})
    fs::create_directories(root() / "evaluations" / step);
  RunFolder folder(root(), Access::owner);
  const Line line = folder.begin_branch(go_back("step-0000000020", first, &first, 20));
  EXPECT_EQ(line.lineage.parents, (std::vector<Ancestor>{{"first", 20}}));
  // From here on, whenever it is killed.
  EXPECT_EQ(read_branch(root()).steps, (Steps{30, 20, 10})) << "30 may be anybody's";
  EXPECT_TRUE(read_branch(root()).is_begun);
  folder.leave_others();
  EXPECT_EQ(steps_in(root()), (Steps{10, 20}));
  EXPECT_EQ(steps_in(root() / "branch-1"), (Steps{30, 40}));
  EXPECT_EQ(tests::read_file(root() / "branch-1/metrics.jsonl"), "{}\n");
  EXPECT_EQ(describe_others(read_branch(root())), "branch-1 (step-0000000040, step-0000000030)");
  EXPECT_EQ(open(root() / "branch-1").step, 40);
  EXPECT_EQ(steps_in(root() / "evaluations"), (Steps{20}));
  EXPECT_EQ(steps_in(root() / "branch-1/evaluations"), (Steps{35, 40}));
  folder.leave_others();
  EXPECT_FALSE(fs::exists(root() / "branch-2"));
}

TEST_F(BranchTest, CompletesWhatWasInterruptedBehindItsNote) {
  save(first, 30);
  save(first, 40);
  {
    RunFolder folder(root(), Access::owner);
    folder.begin_branch(go_back("never", first, nullptr, 0));
  }
  EXPECT_EQ(read_branch(root()).steps, Steps());
  EXPECT_EQ(found(), -1) << "a run that begins anew goes on from nothing";
  fs::create_directory(root() / "branch-1");
  fs::rename(root() / "step-0000000040", root() / "branch-1/step-0000000040");
  RunFolder folder(root(), Access::owner);
  folder.leave_others();
  EXPECT_EQ(steps_in(root()), Steps());
  EXPECT_EQ(steps_in(root() / "branch-1"), (Steps{30, 40}));
}

TEST_F(BranchTest, MovesNothingOntoAnother) {
  save(first, 40);
  RunFolder folder(root(), Access::owner);
  folder.begin_branch(go_back("never", first, nullptr, 0));
  fs::create_directories(root() / "branch-1/step-0000000040");
  const std::string refusal =
      finetune::tests::refusal_of(core::ErrorKind::create, [&] { folder.leave_others(); });
  EXPECT_TRUE(holds_fact(refusal, "branch-1/step-0000000040")) << refusal;
  EXPECT_EQ(steps_in(root()), (Steps{40}));
}

TEST_F(BranchTest, BeginsAnewOnceForEachValue) {
  EXPECT_TRUE(begins_anew(root(), "never"));
  EXPECT_FALSE(begins_anew(root(), "auto"));
  EXPECT_FALSE(begins_anew(root(), "step-0000000020"));
  RunFolder folder(root(), Access::owner);
  const Line line = folder.begin_branch(go_back("never", {}, nullptr, 0));
  EXPECT_FALSE(begins_anew(root(), "never"));
  EXPECT_TRUE(begins_anew(root(), "never#2"));
  // Whoever removes the note, to start once more, does not begin anew by it.
  save({line.run_id, {.branch = 1, .begun_by = {"never"}}}, 5);
  fs::remove(root() / ".run.json");
  EXPECT_FALSE(begins_anew(root(), "never"));
}

TEST_F(BranchTest, NamesOthersWhereANameIsNotThere) {
  save(first, 10);
  fs::create_directory(root() / "branch-1");
  save(first, 40);
  fs::rename(root() / "step-0000000040", root() / "branch-1/step-0000000040");
  const std::string refusal =
      finetune::tests::refusal_of(core::ErrorKind::input, [&] { found("step-0000000040"); });
  for (const char* fact : {"step-0000000010", "branch-1", "step-0000000040"})
    EXPECT_TRUE(holds_fact(refusal, fact)) << refusal;
}

/// Starts that train, go back, begin anew and are killed in one folder, as the program does it, and
/// where the newest checkpoint of every run has to be.
class History {
 public:
  History(const fs::path& root, unsigned seed) : root_(root), random_(seed) {}

  /// One start: it chooses, leaves what it has to, unless it is killed before, and saves.
  void start() {
    const int what = below(6);
    if (what == 0 && newest_.contains(line_.run_id)) fs::remove(root_ / ".run.json");
    RunFolder folder(root_, Access::owner);
    const Branch branch = read_branch(root_);
    expect_line(branch);
    if (what <= 2) {
      line_ = folder.continue_line(branch.line);
    } else {
      line_ = go_back(branch, what == 3 ? 0 : pick(branch));
      line_ = folder.begin_branch(line_);
    }
    const bool is_killed = below(4) == 0;
    if (is_killed) {
      // A first start has left nothing then, and the next one has another id.
      if (what <= 2 && branch.line.run_id.empty()) line_ = {};
      return expect_all();
    }
    folder.leave_others();
    folder.begin(step_, "deck", 0);
    expect_all();
    for (int saves = below(4); saves > 0; --saves) {
      step_ += 1 + below(3);
      save();
      expect_all();
    }
  }

 private:
  int below(int end) { return static_cast<int>(random_() % static_cast<unsigned>(end)); }

  /// A step of the branch; 0: it begins anew.
  std::int64_t pick(const Branch& branch) {
    return branch.steps.empty()
               ? 0
               : branch
                     .steps[static_cast<std::size_t>(below(static_cast<int>(branch.steps.size())))];
  }

  Line go_back(const Branch& branch, std::int64_t step) {
    step_ = step;
    const auto from = saved_by(root_, step);
    // A run that is gone on from at its end has nothing that the new one does not go on with.
    const auto last = from ? newest_.find(from->run_id) : newest_.end();
    if (last != newest_.end() && last->second == step) newest_.erase(last);
    Line line = checkpoint::go_back("never", branch.line, from ? &*from : nullptr, step);
    line.lineage.branch = branch.highest + 1;
    return line;
  }

  static std::optional<Line> saved_by(const fs::path& root, std::int64_t step) {
    const fs::path file = root / folder_name(step) / state_name;
    if (!fs::exists(file)) return std::nullopt;
    return RunState::from_json(core::parse_json(tests::read_file(file), "state")).line();
  }

  void save() {
    const core::Json state = {{"run_id", line_.run_id}, {"lineage", line_.lineage.to_json()}};
    const std::vector<tests::TestTensor> model = {{"param", "w", {3}, core::DType::f32}};
    const tests::Shard shard = tests::filled(model, 0, 1, step_);
    checkpoint::save({}, {}, 0, root_, step_, state, shard.stored(),
                     {.durability = {.sync = false},
                      .block_bytes = 64,
                      .retention = Retention{.newest = 2, .every = 5}});
    newest_[line_.run_id] = step_;
  }

  void expect_line(const Branch& branch) const {
    if (line_.run_id.empty()) return;
    EXPECT_EQ(branch.line.run_id, line_.run_id);
    EXPECT_EQ(branch.steps.empty() ? 0 : branch.steps.front(), step_);
  }

  /// The newest checkpoint of every run is there, and that of the last branch is what is found.
  void expect_all() const {
    for (const auto& [id, step] : newest_) {
      const auto is_in = [&, id = id, step = step](const fs::path& folder) {
        const auto by = saved_by(folder, step);
        return by && by->run_id == id;
      };
      bool is_there = is_in(root_);
      for (const auto& entry : fs::directory_iterator(root_))
        is_there = is_there || is_in(entry.path());
      EXPECT_TRUE(is_there) << id << " at step " << step;
    }
    expect_line(read_branch(root_));
    const auto found = find({}, root_, "auto");
    EXPECT_EQ(found ? found->step : 0, step_);
  }

  const fs::path& root_;
  std::mt19937 random_;
  Line line_ = {};
  std::int64_t step_ = 0;                       ///< of the line's newest checkpoint
  std::map<std::string, std::int64_t> newest_;  ///< by run
};

TEST(BranchHistory, OfAnyOrderLosesTheNewestCheckpointOfNoRun) {
  for (unsigned seed = 1; seed <= 12 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    const tests::SharedFolder folder;
    History history(folder.path(), seed);
    for (int start = 0; start < 12; ++start)
      history.start();
  }
}

}  // namespace
}  // namespace finetune::checkpoint::branch_test
