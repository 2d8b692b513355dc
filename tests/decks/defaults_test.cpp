// SPDX-License-Identifier: Apache-2.0
// What a deck gets that says nothing: choices of the plan, warnings, finetune.log, and refusals of
// what nobody means.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <regex>
#include <sstream>

#include "support/folders.hpp"
#include "support/run_program.hpp"

namespace finetune::tests::defaults_test {
namespace {

namespace fs = std::filesystem;

const std::string smoke = "inputs/smoke/instructions.toml";

std::string read(const fs::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

Outcome run(int ranks, std::vector<std::string> words) {
  return run_program(finetune_on(ranks, words), source_folder());
}

/// Trains two steps of the smoke deck into `output`.
Outcome train(int ranks, const fs::path& output, std::vector<std::string> more = {}) {
  more.insert(more.begin(), {smoke, "train.output=" + output.string(), "train.max_steps=2",
                             "train.validate_steps=0", "data.validation_fraction=0.0"});
  return run(ranks, more);
}

/// The strategy that a line "  parallel.sharding  NAME" says.
std::string sharding_in(const std::string& out) {
  static const std::regex line("parallel\\.sharding +([A-Z_]+)");
  std::smatch match;
  return std::regex_search(out, match, line) ? match[1].str() : "none";
}

TEST(Defaults, AreChosenAloudAndKeptByARestartOnTheSameRanks) {
  const fs::path output = empty_folder("defaults/auto") / "output";
  const Outcome first = train(2, output, {"train.stop_after_steps=1"});
  ASSERT_EQ(first.exit_code, 75) << first.text();
  EXPECT_EQ(count(first.out, "(taken)"), 1) << first.out;
  EXPECT_EQ(count(first.out, "(runner-up)"), 1) << first.out;
  EXPECT_EQ(count(first.out, "none: nothing is recomputed"), 1) << first.out;
  const std::string taken = sharding_in(first.out);
  ASSERT_NE(taken, "none");
  EXPECT_NE(read(output / ".run.json").find("\"sharding\":\"" + taken + "\""), std::string::npos);

  // As if the machine had changed its mind: what was noted holds.
  const std::string other = taken == "SHARD_GRAD_OP" ? "NO_SHARD" : "SHARD_GRAD_OP";
  std::string note = read(output / ".run.json");
  note.replace(note.find(taken), taken.size(), other);
  std::ofstream(output / ".run.json") << note;
  const Outcome second = train(2, output);
  EXPECT_EQ(second.exit_code, 0) << second.text();
  EXPECT_EQ(sharding_in(second.out), other) << second.out;
  EXPECT_EQ(count(second.out, "as at the start before on these ranks"), 1) << second.out;
}

TEST(Defaults, AreNotWhatAnEarlierDeckStated) {
  const fs::path output = empty_folder("defaults/stated") / "output";
  const Outcome first = train(2, output, {"train.stop_after_steps=1", "parallel.tp=2"});
  ASSERT_EQ(first.exit_code, 75) << first.text();
  const Outcome second = train(2, output);
  EXPECT_EQ(second.exit_code, 0) << second.text();
  EXPECT_EQ(count(second.out, "as at the start before\n"), 0) << second.out;
  EXPECT_EQ(count(second.out, " tp 2 "), 0) << second.out;
  EXPECT_EQ(count(second.out, "(taken)"), 1) << second.out;
}

TEST(Defaults, OfSharedMatricesAreKeptWhereThePlanChoseThem) {
  const fs::path output = empty_folder("defaults/shared") / "output";
  const Outcome first = train(2, output, {"train.stop_after_steps=1", "parallel.tp=2"});
  ASSERT_EQ(first.exit_code, 75) << first.text();
  // As if the memory had not been enough without.
  std::string note = read(output / ".run.json");
  const std::string stated = "\"chosen\":[\"sharding\"]",
                    chosen = "\"chosen\":[\"sharding\",\"tp\"]";
  ASSERT_NE(note.find(stated), std::string::npos) << note;
  note.replace(note.find(stated), stated.size(), chosen);
  std::ofstream(output / ".run.json") << note;
  const Outcome second = train(2, output);
  EXPECT_EQ(second.exit_code, 0) << second.text();
  EXPECT_EQ(sharding_in(second.out), "FULL_SHARD") << second.out;
  EXPECT_EQ(count(second.out, "FULL_SHARD tp 2, as at the start before on these ranks"), 1)
      << second.out;
  EXPECT_NE(read(output / ".run.json").find(chosen), std::string::npos) << "for the start after";
  // Another mesh than that one: what was chosen with it is no choice any more.
  const Outcome third = train(2, output, {"parallel.tp=1"});
  EXPECT_EQ(third.exit_code, 0) << third.text();
  EXPECT_EQ(count(third.out, "as at the start before"), 0) << third.out;
}

/// The number that a line "  train.micro_batch  N" says was taken.
std::string micro_batch_in(const std::string& out) {
  static const std::regex line("  (?:train\\.micro_batch)? +([0-9]+) .*\\(taken\\)");
  std::smatch match;
  return std::regex_search(out, match, line) ? match[1].str() : "none";
}

TEST(Defaults, OfTheMicroBatchAreTheRunsOnAnyRanks) {
  const fs::path output = empty_folder("defaults/micro_batch") / "output";
  const Outcome first = train(1, output, {"train.stop_after_steps=1", "train.micro_batch=auto"});
  ASSERT_EQ(first.exit_code, 75) << first.text();
  const std::string taken = micro_batch_in(first.out);
  ASSERT_NE(taken, "none") << first.out;
  const std::string note = read(output / ".run.json");
  EXPECT_NE(note.find("\"micro_batch\":" + taken), std::string::npos) << note;
  EXPECT_NE(note.find("\"chosen\":[\"sharding\",\"micro_batch\"]"), std::string::npos) << note;
  // Two ranks would have half of the sequences each.
  const Outcome second = train(2, output, {"train.micro_batch=auto"});
  EXPECT_EQ(second.exit_code, 0) << second.text();
  EXPECT_EQ(count(second.out, "train.micro_batch          " + taken + ", as at the start before"),
            1)
      << second.out;
  // It is the run's: stated, it is the same run, and another number is another run.
  const Outcome same = train(2, output, {"train.micro_batch=" + taken});
  EXPECT_EQ(same.exit_code, 0) << same.text();
  const Outcome other =
      train(2, output,
            {"train.micro_batch=" + std::string(taken == "1" ? "2" : "1"), "train.max_steps=3"});
  EXPECT_EQ(other.exit_code, 78) << other.text();
  EXPECT_EQ(count(other.err, "train.micro_batch"), 1) << other.err;
}

TEST(Defaults, OfAStartThatLeftNothingAreForgotten) {
  const fs::path output = empty_folder("defaults/forgotten") / "output";
  const Outcome first = train(1, output, {"train.stop_after_steps=1", "train.micro_batch=auto"});
  ASSERT_EQ(first.exit_code, 75) << first.text();
  for (const auto& entry : fs::directory_iterator(output))
    if (entry.path().filename().string().starts_with("step-")) fs::remove_all(entry.path());
  const Outcome second = train(1, output, {"train.micro_batch=auto"});
  EXPECT_EQ(second.exit_code, 0) << second.text();
  EXPECT_EQ(count(second.out, "as at the start before\n"), 0) << second.out;
}

TEST(Defaults, OfTheMicroBatchAreRefusedWhereRanksMustNotMatter) {
  const Outcome refused = run(1, {smoke, "train.micro_batch=auto", "train.determinism=topology"});
  EXPECT_EQ(refused.exit_code, 78) << refused.text();
  EXPECT_EQ(count(refused.err, "contradicts train.determinism = \"topology\""), 1) << refused.err;
}

TEST(Defaults, LeaveALogThatLaterStartsAppendTo) {
  const fs::path output = empty_folder("defaults/log") / "output";
  const Outcome first = train(1, output, {"train.stop_after_steps=1"});
  ASSERT_EQ(first.exit_code, 75) << first.text();
  const std::string log = read(output / "finetune.log");
  for (const char* words : {"=== finetune inputs/smoke", "plan for ", "start 1 in this folder",
                            "step 1/2", "stopped after step"})
    EXPECT_EQ(count(log, words), 1) << words << "\n" << log;
  const Outcome second = train(1, output);
  ASSERT_EQ(second.exit_code, 0) << second.text();
  const std::string both = read(output / "finetune.log");
  EXPECT_TRUE(both.starts_with(log));
  EXPECT_EQ(count(both, "continues from "), 1) << both;
  EXPECT_EQ(
      count(both,
            "start 2 in this folder, at step 1 of 2; start 1: train.stop_after_steps are done "
            "(after step 1, exit code 75)"),
      1)
      << both;
  EXPECT_EQ(count(both, "done: 1 step in"), 1) << both;
}

TEST(Defaults, TrainWithoutALogThatCannotBeWritten) {
  const fs::path output = empty_folder("defaults/no_log") / "output";
  fs::create_directories(output / "finetune.log");
  fs::permissions(output, fs::perms::owner_all);
  const Outcome outcome = train(1, output);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  EXPECT_EQ(count(outcome.err, "finetune.log: the log cannot be written"), 1) << outcome.err;
}

TEST(Defaults, TellTheEpochOfEveryStep) {
  const fs::path output = empty_folder("defaults/epoch") / "output";
  const Outcome outcome = train(1, output);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.text();
  EXPECT_TRUE(std::regex_search(outcome.out, std::regex("step 2/2  epoch [0-9]+\\.[0-9]{2}  ")))
      << outcome.out;
  const std::string rows = read(output / "metrics.jsonl");
  static const std::regex epoch(R"("step": 2, .*"epoch": ([0-9.]+))");
  std::smatch match;
  ASSERT_TRUE(std::regex_search(rows, match, epoch)) << rows;
  EXPECT_GT(std::stod(match[1]), 0);
}

TEST(Defaults, WarnWhereTheOutputHoldsOtherThings) {
  const fs::path folder = empty_folder("defaults/foreign");
  fs::create_directories(folder / "system" / "important");
  fs::permissions(folder / "system", fs::perms::owner_all);
  fs::create_directory_symlink(folder / "system", folder / "output");
  const Outcome outcome = train(1, folder / "output");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  EXPECT_EQ(count(outcome.err, "it leads to " + fs::canonical(folder / "system").string() +
                                   ", which holds other things than a run: important"),
            1)
      << outcome.err;
}

TEST(Defaults, RefuseABatchThatNoStepEndsWith) {
  const fs::path output = empty_folder("defaults/batch") / "output";
  const Outcome huge = train(1, output, {"train.global_batch=9223372036854775807"});
  EXPECT_EQ(huge.exit_code, 78) << huge.text();
  EXPECT_EQ(count(huge.err, "is out of range (a value from 1 to 1048576 is expected)"), 1)
      << huge.err;
  const Outcome passes = train(1, output, {"train.global_batch=100000"});
  EXPECT_EQ(passes.exit_code, 78) << passes.text();
  EXPECT_EQ(count(passes.err, "100,000 passes of 1 sequence per rank and step"), 1) << passes.err;
  const Outcome data = train(1, output, {"train.global_batch=10000"});
  EXPECT_EQ(data.exit_code, 78) << data.text();
  EXPECT_EQ(count(data.err, "sequences of an epoch"), 1) << data.err;
  const Outcome plan = run(1, {"plan", smoke, "train.global_batch=100000"});
  EXPECT_EQ(plan.exit_code, 78) << plan.text();
}

TEST(Defaults, WarnOfIdleRanksOnce) {
  const fs::path output = empty_folder("defaults/idle") / "output";
  const Outcome outcome = train(2, output, {"train.global_batch=3"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  EXPECT_EQ(count(outcome.err, "1 of 2 ranks have nothing to compute"), 1) << outcome.err;
  EXPECT_EQ(count(outcome.err, "train.global_batch = 3: is small for 2 ranks"), 1) << outcome.err;
}

TEST(PlanOfAMachine, ThatTheProgramHasNoCodeForSaysSo) {
  const std::string recipe = "inputs/recipes/llama-3.1-8b-lora-1x1.toml";
  const Outcome plan = run(1, {"plan", recipe, "--machine", "mi300x-8", "--ranks", "1"});
  EXPECT_EQ(plan.exit_code, 0) << plan.text();
  EXPECT_EQ(count(plan.err, "there is no HIP build"), 1) << plan.err;
  const Outcome job =
      run(1, {"plan", recipe, "--machine", "mi300x-8", "--ranks", "1", "--jobscript", "slurm"});
  EXPECT_EQ(job.exit_code, 64) << job.text();
  EXPECT_EQ(job.out, "");
}

TEST(PlanOfAMachine, SaysWhereItsRatesAreEstimates) {
  const std::string recipe = "inputs/recipes/llama-3.1-8b-lora-1x1.toml";
  const Outcome gpus = run(1, {"plan", recipe, "--machine", "h100-8", "--ranks", "1"});
  EXPECT_EQ(count(gpus.out, "estimated rates: this program has not been timed on GPUs"), 1)
      << gpus.out;
  const Outcome cpus = run(1, {"plan", smoke, "--machine", "cpu-spr-112", "--ranks", "1"});
  EXPECT_EQ(count(cpus.out, "estimated rates: finetune check --save"), 1) << cpus.out;
  const auto file = empty_folder("decks/measured") / "machine.toml";
  std::ofstream(file) << "[machine]\ncores_per_node = 4\nbf16_tflops = 1\nmemory_gb_per_s = 10\n"
                         "is_measured = true\n";
  const Outcome measured = run(1, {"plan", smoke, "--machine", file.string(), "--ranks", "1"});
  EXPECT_EQ(measured.exit_code, 0) << measured.text();
  EXPECT_EQ(count(measured.out, "estimated rates"), 0) << measured.out;
}

TEST(PlanOfAMachine, ShowsTheChoiceThatItsOwnTableShows) {
  const Outcome outcome = run(1, {"plan", "inputs/recipes/llama-3.1-8b-full-1x8.toml", "--machine",
                                  "h100-8", "--nodes", "2"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.text();
  // The first row of the table of strategies is this plan.
  EXPECT_TRUE(std::regex_search(
      outcome.out, std::regex("\n  strategies +" + sharding_in(outcome.out) + " .*this plan")))
      << outcome.out;
}

}  // namespace
}  // namespace finetune::tests::defaults_test
