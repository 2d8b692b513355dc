// SPDX-License-Identifier: Apache-2.0
// When a run saves, what it keeps, and what it does when a save fails. Faults are planted through
// the environment (core/fault.hpp).
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>

#include "restart/job.hpp"

namespace finetune::tests::saving_test {
namespace {

namespace fs = std::filesystem;

/// A variable of the environment, for programs that are started meanwhile.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    ::setenv(name, value.c_str(), 1);
  }
  ~Variable() { ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

std::vector<std::string> settings(std::vector<std::string> more) {
  std::vector<std::string> all = short_run("32-true", 12);
  std::erase(all, "checkpoint.save_steps=6");
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

std::vector<int> kept_steps(const Job& job) {
  std::vector<int> steps;
  for (const auto& entry : fs::directory_iterator(job.output())) {
    const std::string name = entry.path().filename();
    if (name.starts_with("step-")) steps.push_back(std::stoi(name.substr(5)));
  }
  std::ranges::sort(steps);
  return steps;
}

bool has_leftovers(const Job& job) {
  return std::ranges::any_of(fs::directory_iterator(job.output()), [](const auto& entry) {
    return entry.path().filename().string().starts_with(".tmp-");
  });
}

using Steps = std::vector<int>;

TEST(Saving, BesideTrainingWritesTheSameBytesAsInTurn) {
  const Job beside("saving.beside", settings({"checkpoint.save_steps=4"}));
  const Job in_turn("saving.in_turn",
                    settings({"checkpoint.save_steps=4", "checkpoint.async=false"}));
  // Slow enough that steps pass while a save is being written.
  const Variable fault("FINETUNE_FAULT", "ckpt.pwrite:*:*:slow=2");
  for (const Job* job : {&beside, &in_turn}) {
    const Outcome outcome = job->run(2);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
    EXPECT_EQ(kept_steps(*job), (Steps{8, 12}));
  }
  EXPECT_TRUE(beside.checkpoint_bytes(8) == in_turn.checkpoint_bytes(8));
  EXPECT_TRUE(beside.checkpoint_bytes(12) == in_turn.checkpoint_bytes(12));
  expect_same_metrics(beside, in_turn);
}

TEST(Saving, ThatIsDueWhileTheLastOneIsWrittenWaitsOrIsSkippedAloud) {
  const Variable fault("FINETUNE_FAULT", "ckpt.fsync:0:1:slow=3000");
  for (const std::string mode : {"wait", "skip"}) {
    const Job job("saving." + mode,
                  settings({"checkpoint.save_steps=2", "checkpoint.when_busy=" + mode,
                            "checkpoint.save_total_limit=9"}));
    const Outcome outcome = job.run(2);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
    const std::string due =
        "warning: the checkpoint of step 4 is due while that of step 2 is still";
    EXPECT_EQ(count(outcome.err, due), 1) << outcome.err;
    const Steps steps = kept_steps(job);
    EXPECT_EQ(std::ranges::count(steps, 2), 1);
    EXPECT_EQ(std::ranges::count(steps, 4), mode == "wait" ? 1 : 0);
    EXPECT_EQ(std::ranges::count(steps, 12), 1);
  }
}

TEST(Saving, ByMinutesNeedsNoSteps) {
  const Job job("saving.minutes",
                settings({"checkpoint.save_minutes=1e-9", "checkpoint.save_total_limit=99"}));
  const Outcome outcome = job.run(2);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  EXPECT_EQ(kept_steps(job), (Steps{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}));
}

/// Steps that end another `epochs` by what the rows of steps say.
Steps ends_of(const Job& job, double epochs) {
  Steps ends;
  double before = 0;
  for (const core::Json& row : job.steps()) {
    const double now = row.at("epoch").get<double>();
    if (std::floor(now / epochs) > std::floor(before / epochs))
      ends.push_back(row.at("step").get<int>());
    before = now;
  }
  return ends;
}

TEST(Saving, ByEpochsIsTheSameOnAnyRanksAndBehindARestart) {
  std::vector<std::string> by_epochs =
      settings({"checkpoint.save_epochs=0.75", "train.validate_epochs=0.5",
                "checkpoint.save_total_limit=99"});
  std::erase(by_epochs, "train.validate_steps=8");
  const Job job("saving.epochs", by_epochs);
  const Outcome outcome = job.run(2);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  const Steps ends = ends_of(job, 0.75);
  EXPECT_GE(ends.size(), 3u);
  EXPECT_EQ(kept_steps(job), ends) << "the last step ends an epoch";
  Steps validated;
  for (const core::Json& row : job.metrics())
    if (row.contains("validation_loss") && row.at("step") > 0)
      validated.push_back(row.at("step").get<int>());
  EXPECT_EQ(validated, ends_of(job, 0.5));

  const Job stopped("saving.epochs_stopped", by_epochs);
  EXPECT_EQ(stopped.run(1, {"train.stop_after_steps=5"}).exit_code, 75);
  EXPECT_EQ(stopped.run(1).exit_code, 0);
  Steps kept = kept_steps(stopped);
  std::erase(kept, 5);
  EXPECT_EQ(kept, ends);
}

TEST(Saving, OfARunThatEndsWithinAnEpochEndsWithTheBitsOfOneThatWasNotStopped) {
  // 1.6 epochs of 4 steps are 6.4, so 7: the schedule, saves and validations go by that.
  std::vector<std::string> by_epochs =
      settings({"train.epochs=1.6", "checkpoint.save_epochs=0.5", "train.validate_epochs=0.5",
                "checkpoint.save_total_limit=99"});
  std::erase(by_epochs, "train.validate_steps=8");
  std::erase(by_epochs, "train.max_steps=12");
  const Job straight("saving.part", by_epochs);
  const Outcome outcome = straight.run(2);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  EXPECT_EQ(ends_of(straight, 0.5), (Steps{2, 4, 6}));
  EXPECT_EQ(kept_steps(straight), (Steps{2, 4, 6, 7}));

  const Job stopped("saving.part_stopped", by_epochs);
  EXPECT_EQ(stopped.run(2, {"train.stop_after_steps=3"}).exit_code, 75);
  EXPECT_EQ(stopped.run(2).exit_code, 0);
  expect_same_metrics(stopped, straight);
  EXPECT_TRUE(stopped.checkpoint_bytes(7) == straight.checkpoint_bytes(7));
  const Outcome longer = stopped.run(2, {"train.epochs=2.1"});
  EXPECT_EQ(longer.exit_code, 0) << longer.text();
  EXPECT_EQ(stopped.steps().size(), 9u);
}

TEST(Saving, KeepsTheNewestTheMultiplesAndTheBest) {
  // A learning rate that spoils the model soon: the validation at step 8 is the best.
  const Job job("saving.keep", settings({"checkpoint.save_steps=1", "checkpoint.save_total_limit=1",
                                         "checkpoint.keep_every=5", "checkpoint.keep_best=1"}));
  const Outcome outcome = job.run(1);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  int best = 0;
  double best_loss = 1e30;
  for (const core::Json& row : job.metrics()) {
    if (!row.contains("validation_loss") || row.at("step") == 0) continue;
    if (row.at("validation_loss").get<double>() <= best_loss) {
      best_loss = row.at("validation_loss").get<double>();
      best = row.at("step").get<int>();
    }
  }
  Steps expected = {5, 10, 12, best};
  std::ranges::sort(expected);
  expected.erase(std::ranges::unique(expected).begin(), expected.end());
  EXPECT_EQ(kept_steps(job), expected);
}

TEST(Saving, ThatFailsIsAWarningAndTrainingGoesOn) {
  const Variable fault("FINETUNE_FAULT", "ckpt.pwrite:1:1:enospc");
  const Job job("saving.fails", settings({"checkpoint.save_steps=4"}));
  const Outcome outcome = job.run(2);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  EXPECT_EQ(count(outcome.err, "warning: the checkpoint of step 4 could not be saved: "), 1)
      << outcome.err;
  EXPECT_EQ(count(outcome.err, "planted fault (No space left on device)"), 1) << outcome.err;
  EXPECT_EQ(kept_steps(job), (Steps{8, 12}));
  EXPECT_FALSE(has_leftovers(job));
}

TEST(Saving, ThatFailsStopsTheRunIfTheDeckSaysSo) {
  const Variable fault("FINETUNE_FAULT", "ckpt.pwrite:1:9:eio");
  const Job job("saving.stops",
                settings({"checkpoint.save_steps=4", "checkpoint.on_error=stop",
                          "checkpoint.read_back=false", "checkpoint.when_busy=wait"}));
  const Outcome outcome = job.run(2);
  EXPECT_EQ(outcome.exit_code, 74) << outcome.text();
  EXPECT_EQ(count(outcome.err, "error: "), 1) << outcome.err;
  EXPECT_FALSE(has_leftovers(job));
}

TEST(Saving, ThatFailsThreeTimesInARowStopsTheRun) {
  const Variable fault("FINETUNE_FAULT", "ckpt.fsync:1:*:eio");
  const Job job("saving.thrice", settings({"checkpoint.save_steps=2"}));
  const Outcome outcome = job.run(2);
  EXPECT_EQ(outcome.exit_code, 74) << outcome.text();
  EXPECT_EQ(count(outcome.err, "3 saves in a row have failed, the last because of: "), 1)
      << outcome.err;
  EXPECT_EQ(count(outcome.err, "could not be saved"), 2) << outcome.err;
  EXPECT_EQ(kept_steps(job), Steps());
  EXPECT_FALSE(has_leftovers(job));
}

TEST(Saving, ProbeSavesAfterTheFirstStepAndEndsTheRunIfItCannot) {
  const Job good("saving.probe", settings({"checkpoint.probe=true"}));
  const Outcome outcome = good.run(1);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  EXPECT_EQ(kept_steps(good), (Steps{1, 12}));

  const Variable fault("FINETUNE_FAULT", "ckpt.dir_rename:0:1:eio");
  const Job bad("saving.probe_fails", settings({"checkpoint.probe=true"}));
  EXPECT_EQ(bad.run(2).exit_code, 74);
  EXPECT_EQ(bad.steps().size(), 1u);
}

TEST(Saving, InTurnBlocksForAllOfIt) {
  const Variable fault("FINETUNE_FAULT", "ckpt.fsync:1:1:slow=300");
  const Job job("saving.blocked", settings({"checkpoint.async=false"}));
  EXPECT_EQ(job.run(2).exit_code, 0);
  int num_rows = 0;
  std::ifstream file(job.output() / "metrics.jsonl");
  for (std::string line; std::getline(file, line);) {
    const core::Json row = core::parse_json(line, "metrics.jsonl");
    if (!row.contains("checkpoint")) continue;
    ++num_rows;
    EXPECT_GE(row["checkpoint"]["write_s"].get<double>(), 0.3);
    EXPECT_GE(row["checkpoint"]["blocked_s"], row["checkpoint"]["write_s"]);
  }
  EXPECT_EQ(num_rows, 1);
}

TEST(Saving, GoesOnWithoutRowsOfMetricsThatTheDiskCannotTake) {
  const Variable fault("FINETUNE_FAULT",
                       "metrics.append:0:4:enospc,metrics.append:0:5:enospc,"
                       "metrics.append:0:9:enospc");
  const Job job("saving.metrics", settings({"checkpoint.save_steps=4"}));
  const Outcome outcome = job.run(2);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  EXPECT_EQ(count(outcome.err, "warning: rows of metrics.jsonl are lost: "), 1) << outcome.err;
  EXPECT_EQ(kept_steps(job), (Steps{8, 12}));
  EXPECT_LT(job.steps().size(), 12u);
}

TEST(Saving, ASignalBeforeTheFirstStepEndsTheStart) {
  const Job job("saving.early", settings({}));
  EXPECT_EQ(job.run(2, {"train.stop_after_steps=4"}).exit_code, 75);
  const Variable fault("FINETUNE_FAULT", "load.manifest:1:1:usr1");
  const Outcome outcome = job.run(2);
  EXPECT_EQ(outcome.exit_code, 76) << outcome.text();
  EXPECT_EQ(job.steps().size(), 4u);
}

TEST(LocalLevel, AtTheEndTheSharedLevelHasTheRunAndTheNodeNothing) {
  const Job job("local.end", settings({"checkpoint.local_dir=local", "checkpoint.local_steps=3"}));
  fs::create_directory(job.folder() / "local");
  {
    const Variable fault("FINETUNE_FAULT", "step.fwd:0:30:kill");
    EXPECT_NE(job.run(1).exit_code, 0);
  }
  EXPECT_EQ(kept_steps(job), Steps());
  // It stops where the local checkpoint is: that is not yet one that others can see.
  const Outcome outcome = job.run(1, {"train.max_steps=9"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  EXPECT_EQ(count(outcome.out, "continues from local/finetune-"), 1) << outcome.out;
  EXPECT_EQ(kept_steps(job), (Steps{9}));
  for (const auto& entry : fs::recursive_directory_iterator(job.folder() / "local"))
    EXPECT_TRUE(entry.is_directory()) << entry.path();
}

TEST(LocalLevel, ADamagedOneIsNoBeginning) {
  const Job job("local.damaged",
                settings({"checkpoint.local_dir=local", "checkpoint.local_steps=3"}));
  fs::create_directory(job.folder() / "local");
  {
    const Variable fault("FINETUNE_FAULT", "step.fwd:0:24:kill");
    EXPECT_NE(job.run(1).exit_code, 0);
  }
  for (const auto& entry : fs::recursive_directory_iterator(job.folder() / "local")) {
    if (entry.path().extension() != ".h5") continue;
    std::string bytes = read_file(entry.path());
    bytes[bytes.size() - 9] = static_cast<char>(bytes[bytes.size() - 9] ^ 4);
    write_file(entry.path(), bytes);
  }
  const Outcome outcome = job.run(1);
  EXPECT_EQ(outcome.exit_code, 65) << outcome.text();
  EXPECT_EQ(count(outcome.err, "no checkpoint of this run can be used"), 1) << outcome.err;
}

TEST(Saving, LetsInWhomTheDeckNames) {
  const Job job("saving.access", settings({"checkpoint.access=group"}));
  EXPECT_EQ(job.run(1).exit_code, 0);
  const auto mode = [&](const fs::path& path) {
    struct stat status = {};
    EXPECT_EQ(::stat((job.output() / path).c_str(), &status), 0) << path;
    return status.st_mode & 0777u;
  };
  EXPECT_EQ(mode(""), 0750u);
  EXPECT_EQ(mode("step-0000000012"), 0750u);
  for (const char* file : {"metrics.jsonl", "step-0000000012/MANIFEST.json",
                           "step-0000000012/state.json", "step-0000000012/node00000.h5"})
    EXPECT_EQ(mode(file), 0640u) << file;
}

}  // namespace
}  // namespace finetune::tests::saving_test
