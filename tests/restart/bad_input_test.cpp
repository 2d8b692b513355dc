// SPDX-License-Identifier: Apache-2.0
// Models that are not whole or hold no numbers, and runs whose numbers go wrong while they are
// finite: what the commands say, and when.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "restart/job.hpp"
#include "support/folders.hpp"

namespace finetune::tests::bad_input_test {
namespace {

namespace fs = std::filesystem;

/// A job whose model is a copy that may be damaged.
Job damageable(const std::string& name, const Words& settings) {
  Job job("bad_input." + name, with({"train.max_steps=3", "model.path=own"}, settings));
  fs::create_directories(job.folder() / "own");
  for (const auto& entry : fs::directory_iterator(job.model()))
    fs::copy_file(entry.path(), job.folder() / "own" / entry.path().filename());
  for (const auto& entry : fs::directory_iterator(job.folder() / "own"))
    fs::permissions(entry.path(), fs::perms::owner_write, fs::perm_options::add);
  return job;
}

fs::path own_weights(const Job& job) {
  return job.folder() / "own/model.safetensors";
}

Outcome command(const Job& job, const Words& words) {
  return run_finetune(1, with(words, job.arguments()), job.folder());
}

TEST(BadInput, TruncatedModelIsFoundBeforeAnythingIsTokenised) {
  const Job job = damageable("truncated", {});
  fs::resize_file(own_weights(job), fs::file_size(own_weights(job)) / 2);
  for (const Words& words : {Words{"plan"}, Words{"check", "--quick"}, Words{}}) {
    const Outcome outcome = command(job, words);
    EXPECT_EQ(outcome.exit_code, 65) << outcome.text();
    EXPECT_EQ(count(outcome.err, "error: own/model.safetensors: "), 1) << outcome.text();
    EXPECT_EQ(count(outcome.text(), "tokenised"), 0) << outcome.text();
  }
  EXPECT_FALSE(fs::exists(job.output()));
  // A model of which there is only a config.json is planned with.
  fs::remove(own_weights(job));
  EXPECT_EQ(command(job, {"plan"}).exit_code, 0);
}

/// A run that trains all weights has them in its checkpoints.
TEST(BadInput, ModelThatIsGoneStopsNoRunThatHasItsWeights) {
  const Job job = damageable("gone", {"train.stop_after_steps=1"});
  EXPECT_EQ(job.run(1).exit_code, 75);
  fs::remove(own_weights(job));
  const Outcome outcome = job.run(1, {"train.stop_after_steps=0"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
}

TEST(BadInput, WeightsThatAreNoNumbersAreNamed) {
  const Job job = damageable("nan", {});
  {
    std::fstream file(own_weights(job), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-4, std::ios::end);
    file.write("\xff\xff\xff\xff", 4);  // NaN in every floating dtype
  }
  const Outcome verified = run_finetune(1, {"verify", "own"}, job.folder());
  EXPECT_EQ(verified.exit_code, 65) << verified.text();
  EXPECT_EQ(count(verified.err, "error: own/model.safetensors: tensor \""), 1) << verified.text();
  const auto expect_named = [&](int ranks, const Words& more) {
    const Outcome outcome = job.run(ranks, more);
    EXPECT_EQ(outcome.exit_code, 65) << outcome.text();
    EXPECT_EQ(count(outcome.err, "error: own/model.safetensors: tensor \""), 1) << outcome.text();
    EXPECT_EQ(count(outcome.err, " nan "), 1) << outcome.text();
    EXPECT_EQ(count(outcome.err, "optimizer.lr"), 0) << outcome.text();
  };
  expect_named(1, {});
  expect_named(2, {});
  // Where ranks communicate as they load.
  expect_named(2, {"precision.mode=fp8-mixed", "train.hang_timeout_s=20"});
}

TEST(BadInput, LossThatExplodesWhileFiniteIsToldAndOnDemandEndsTheRun) {
  const Words settings = {"train.max_steps=6", "optimizer.lr=100", "optimizer.warmup_steps=0",
                          "optimizer.schedule=constant"};
  const Job job("bad_input.exploding", settings);
  const Outcome told = job.run(2);
  EXPECT_EQ(told.exit_code, 0) << told.text();
  EXPECT_EQ(count(told.text(), "exploded"), 1) << told.text();
  const Job ended("bad_input.exploded", with(settings, {"train.stop_on_divergence=true"}));
  const Outcome outcome = ended.run(2);
  EXPECT_EQ(outcome.exit_code, 71) << outcome.text();
  EXPECT_EQ(count(outcome.err, "exploded"), 1) << outcome.text();
  EXPECT_LT(ended.steps().size(), job.steps().size());
}

TEST(BadInput, LearningRateThatJumpsOnARestartIsTold) {
  const Job job("bad_input.lr", {"optimizer.schedule=cosine", "optimizer.warmup_steps=0"});
  EXPECT_EQ(count(job.run(1, {"train.max_steps=4"}).text(), "jumps"), 0);
  const Outcome longer = job.run(1, {"train.max_steps=8", "train.stop_after_steps=2"});
  EXPECT_EQ(longer.exit_code, 75) << longer.text();
  EXPECT_EQ(count(longer.text(), "warning: step 5: "), 1) << longer.text();
  const Outcome same = job.run(1, {"train.max_steps=8"});
  EXPECT_EQ(same.exit_code, 0) << same.text();
  EXPECT_EQ(count(same.text(), "jumps"), 0) << same.text();
}

}  // namespace
}  // namespace finetune::tests::bad_input_test
