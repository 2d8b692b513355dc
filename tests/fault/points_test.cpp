// SPDX-License-Identifier: Apache-2.0
// A rank dies at each named point of saving, loading and training; the next start goes on from a
// good checkpoint to the same bits. FINETUNE_POINTS=all: every point, rank and hit.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "fault/harness.hpp"

namespace finetune::tests::points_test {
namespace {

constexpr int ranks = 2;
constexpr int num_steps = 9;

struct Point {
  const char* name;
  int rank;  ///< one that comes there
  int hit;   ///< of the short list
};

const Point save_points[] = {
    {"ckpt.snapshot", 1, 2},     {"ckpt.mkdir", 0, 1},           {"ckpt.skeleton", 0, 2},
    {"ckpt.pwrite", 1, 40},      {"ckpt.fsync", 0, 3},           {"ckpt.gather", 1, 2},
    {"ckpt.manifest_tmp", 0, 2}, {"ckpt.manifest_rename", 0, 2}, {"ckpt.dir_rename", 0, 2},
    {"ckpt.dir_fsync", 0, 2},    {"ckpt.retire", 0, 1}};
const Point step_points[] = {{"data.next", 1, 3},
                             {"step.fwd", 0, 5},
                             {"step.bwd", 1, 5},
                             {"step.allreduce", 1, 3},
                             {"step.optim", 0, 3}};
const Point load_points[] = {{"load.manifest", 0, 1}, {"load.read", 1, 2}, {"load.reshard", 1, 1}};

bool is_long() {
  return std::getenv("FINETUNE_POINTS") != nullptr;
}

class Points : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    whole_ = std::make_unique<WholeRun>("fault.points.whole", ranks, num_steps);
  }
  static void TearDownTestSuite() { whole_.reset(); }

  static Job job(const std::string& name) {
    return {"fault.points." + name, save_every_step(num_steps)};
  }
  static Environment fault(const Point& point, const std::string& action) {
    return {std::string("FINETUNE_FAULT=") + point.name + ":" + std::to_string(point.rank) + ":" +
            std::to_string(point.hit) + ":" + action};
  }

  /// One run that dies, and the one after it. False if it did not come to the point.
  static bool kill_at(const Point& point) {
    const Job killed = job(point.name);
    const Outcome outcome = run(killed, ranks, fault(point, "kill"));
    EXPECT_FALSE(outcome.timed_out);
    if (outcome.exit_code == exits::done) return false;
    EXPECT_EQ(outcome.exit_code, 128 + SIGKILL) << outcome.text();
    EXPECT_TRUE(all_ranks_are_gone(killed));
    whole_->expect_good_restart(killed, outcome.out);
    return true;
  }

  static void kill_at_all(std::span<const Point> points) {
    for (const Point& point : points) {
      SCOPED_TRACE(point.name);
      EXPECT_TRUE(kill_at(point));
      for (int i = 0; is_long() && i < ranks * 3; ++i) {
        const Point other{point.name, i % ranks, (const int[]){1, 2, 7}[i / ranks]};
        SCOPED_TRACE(fault(other, "kill").front());
        std::printf("%s: %s\n", fault(other, "kill").front().c_str(),
                    kill_at(other) ? "killed" : "never reached");
      }
    }
  }

  static inline std::unique_ptr<WholeRun> whole_;
};

TEST_F(Points, OfASaveSurviveAKill) {
  kill_at_all(save_points);
}

TEST_F(Points, OfAStepSurviveAKill) {
  kill_at_all(is_long() ? std::span<const Point>(step_points)
                        : std::span<const Point>(step_points).subspan(3, 1));
}

TEST_F(Points, OfALoadSurviveAKill) {
  const Job stopped = job("load");
  Outcome outcome = run(stopped, ranks, {}, {"train.stop_after_steps=4"});
  EXPECT_EQ(outcome.exit_code, exits::stopped_saved) << outcome.text();
  for (const Point& point : load_points) {
    SCOPED_TRACE(point.name);
    const Outcome killed = run(stopped, ranks, fault(point, "kill"));
    EXPECT_EQ(killed.exit_code, 128 + SIGKILL) << killed.text();
  }
  whole_->expect_good_restart(stopped, outcome.out);
}

// An error of the disk costs one checkpoint and nothing else: R09 is ckpt.fsync.
TEST_F(Points, OfASaveSurviveErrorsOfTheDisk) {
  const Point failing[] = {{"ckpt.mkdir", 0, 3},     {"ckpt.skeleton", 0, 3},
                           {"ckpt.pwrite", 1, 100},  {"ckpt.fsync", 1, 3},
                           {"ckpt.gather", 1, 3},    {"ckpt.manifest_tmp", 0, 3},
                           {"ckpt.dir_rename", 0, 3}};
  for (const Point& point : failing) {
    if (!is_long() && point.name != std::string("ckpt.fsync")) continue;
    SCOPED_TRACE(point.name);
    const Job hit = job(std::string(point.name) + ".eio");
    const Outcome outcome = run(hit, ranks, fault(point, "eio"));
    EXPECT_EQ(outcome.exit_code, exits::done) << outcome.text();
    EXPECT_EQ(count(outcome.err, " could not be saved: "), 1) << outcome.text();
    EXPECT_EQ(count(outcome.err, "Training continues with that of step "), 1) << outcome.text();
    whole_->expect_same_end(hit);
    EXPECT_EQ(verify(hit).exit_code, exits::done);
  }
}

// The control: a flipped bit in what is written is seen before older checkpoints go.
TEST_F(Points, OfAWriteWithAFlippedBitAreSeenBeforeOlderCheckpointsGo) {
  const Job hit = job("flip");
  const Outcome outcome = run(hit, ranks, {"FINETUNE_FAULT=ckpt.pwrite:1:100:flip"});
  EXPECT_EQ(outcome.exit_code, exits::done) << outcome.text();
  EXPECT_EQ(count(outcome.err, " could not be saved: "), 1) << outcome.text();
  whole_->expect_same_end(hit);
  EXPECT_EQ(verify(hit).exit_code, exits::done);
}

}  // namespace
}  // namespace finetune::tests::points_test
