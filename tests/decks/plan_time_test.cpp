// SPDX-License-Identifier: Apache-2.0
// `finetune plan DECK --machine`: what it tells of time, strategies, checkpoints and scaling, and
// what it refuses.
#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <sstream>

#include "support/folders.hpp"
#include "support/run_program.hpp"

namespace finetune::tests::plan_time_test {
namespace {

namespace fs = std::filesystem;

const std::string recipe = "inputs/recipes/llama-3.3-70b-full-2x8.toml";

Outcome plan(const std::string& deck, std::vector<std::string> words) {
  words.insert(words.begin(), {"plan", deck});
  return run_program(finetune_on(1, words), source_folder());
}

std::string read(const fs::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// Lines of the table that begins with `title`.
std::vector<std::string> rows_of(const std::string& out, const std::string& title) {
  std::vector<std::string> rows;
  std::istringstream lines(out);
  bool is_in = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(title)) is_in = true;
    if (is_in && std::regex_search(line, std::regex("^ +[0-9]"))) rows.push_back(line);
    if (is_in && !rows.empty() && !line.starts_with("  ")) break;
  }
  return rows;
}

/// Seconds of a step.
double step_s(const Outcome& outcome) {
  std::smatch found;
  const std::regex line("\n  step +([0-9.]+) s\n");
  if (!std::regex_search(outcome.out, found, line)) ADD_FAILURE() << outcome.text();
  return found.empty() ? 0 : std::stod(found[1].str());
}

// Links of PCIe: gathers of some blocks outlast others'.
TEST(PlanOnAMachine, PrefetchesFurtherWhereThatIsFaster) {
  const auto with = [](const std::string& depth) {
    return plan("inputs/recipes/llama-3.3-70b-lora-1x8.toml",
                {"--machine", "l40s-8", "--gpu-kernels", "parallel.prefetch=" + depth});
  };
  const Outcome left_open = with("auto"), one = with("1"), two = with("2");
  EXPECT_EQ(
      count(left_open.out, "  parallel.prefetch          2: blocks are gathered so many ahead"), 1)
      << left_open.text();
  EXPECT_EQ(step_s(left_open), step_s(two));
  EXPECT_LT(step_s(two), step_s(one));
}

TEST(PlanOnAMachine, TellsTimeStrategiesTheRunAndCheckpoints) {
  const Outcome outcome =
      plan(recipe, {"--machine", "h100-8", "--nodes", "2", "train.max_steps=1000"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.text();
  for (const char* words :
       {"16 on 2 nodes", "memory per rank", "time on 8 H100 SXM 80 GB, 8 x 400 Gb/s", "  step  ",
        "waiting for messages", "optimizer", "of its peak (MFU)", "for 1,000 steps", "node-hours",
        "FULL_SHARD", "(this plan)", "does not fit", "checkpoint", "Young/Daly", "weak scaling",
        "strong scaling", "fits: "})
    EXPECT_GE(count(outcome.out, words), 1) << words << "\n" << outcome.out;
  const auto weak = rows_of(outcome.out, "weak scaling");
  // One node of 80 GB does not hold it.
  ASSERT_EQ(weak.size(), 3U) << outcome.out;
  EXPECT_TRUE(std::regex_search(weak[0], std::regex("^ +2 +16 +64 .* 100.0 %"))) << weak[0];
  EXPECT_TRUE(std::regex_search(weak[2], std::regex("^ +8 +64 +256 "))) << weak[2];
}

TEST(PlanOnAMachine, SaysThatTheLengthOfARunByEpochsFollowsFromTheData) {
  const Outcome outcome = plan(recipe, {"--machine", "h100-8", "--nodes", "2"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  EXPECT_EQ(count(outcome.out, "follows from the data"), 1) << outcome.out;
}

TEST(PlanOnAMachine, CountsTheStepsOfEpochsFromTheSamples) {
  const Outcome outcome = plan(recipe, {"--machine", "h100-8", "--nodes", "2", "--samples", "6401",
                                        "train.epochs=3", "train.global_batch=64"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  EXPECT_EQ(count(outcome.out, "for 303 steps"), 1) << outcome.out;
  EXPECT_EQ(count(outcome.out, "follows from the data"), 0) << outcome.out;
}

TEST(PlanOnAMachine, TakesPartsOfEpochs) {
  const std::vector<std::string> part = {"--machine", "h100-8", "--nodes", "2", "train.epochs=0.5"};
  EXPECT_EQ(count(plan(recipe, part).out, "how many steps 0.5 epochs are follows"), 1);
  std::vector<std::string> counted = part;
  counted.insert(counted.end(), {"--samples", "6401", "train.global_batch=64"});
  const Outcome outcome = plan(recipe, counted);
  EXPECT_EQ(count(outcome.out, "for 51 steps"), 1) << outcome.text();
}

TEST(PlanOnAMachine, MarksNodesWhoseRanksHaveNothingToDo) {
  const Outcome outcome =
      plan(recipe, {"--machine", "h100-8", "--nodes", "4", "train.global_batch=16"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  const auto weak = rows_of(outcome.out, "weak scaling");
  ASSERT_EQ(weak.size(), 1U) << outcome.out;
  EXPECT_TRUE(weak[0].ends_with("ranks idle")) << weak[0];
}

TEST(PlanOnAMachine, PrintsNothingWhereThePlotCannotBeWritten) {
  const fs::path folder = empty_folder("plan_plot");
  for (const fs::path& file : {folder, folder / "none" / "scaling.svg", fs::path("/proc/x.svg")}) {
    const Outcome outcome = plan(recipe, {"--machine", "h100-8", "--plot", file.string()});
    EXPECT_EQ(outcome.exit_code, 73) << outcome.text();
    EXPECT_EQ(outcome.out, "");
    EXPECT_EQ(count(outcome.err, "error: "), 1) << outcome.err;
  }
}

TEST(PlanOnAMachine, OfOneHundredThousandRanksIsMade) {
  for (const char* nodes : {"2048", "12500"}) {
    const Outcome outcome =
        plan(recipe, {"--machine", "h100-8", "--nodes", nodes, "train.global_batch=400000"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
    EXPECT_EQ(rows_of(outcome.out, "weak scaling").size(), nodes[1] == '0' ? 13U : 16U)
        << outcome.out;
  }
}

TEST(PlanOnAMachine, DrawsItsScaling) {
  const fs::path file = empty_folder("plan_time") / "scaling.svg";
  const Outcome outcome =
      plan(recipe, {"--machine", "h100-8", "--nodes", "4", "--plot", file.string()});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  const std::string svg = read(file);
  EXPECT_TRUE(svg.starts_with("<svg ") && svg.ends_with("</svg>\n")) << svg;
  EXPECT_EQ(count(svg, ">llama-3.3-70b-full-2x8.toml on 8 H100"), 1) << svg;
}

TEST(PlanOnAMachine, DrawsItsScalingBesideAJob) {
  const fs::path file = empty_folder("plan_job") / "scaling.svg";
  const Outcome outcome = plan(recipe, {"--machine", "h100-8", "--nodes", "2", "--plot",
                                        file.string(), "--jobscript", "slurm"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  EXPECT_TRUE(outcome.out.starts_with("#!")) << outcome.out;
  EXPECT_TRUE(read(file).starts_with("<svg "));
}

TEST(PlanOnAMachine, PrintsAJobAloneOnStdout) {
  const Outcome outcome = plan(recipe, {"--machine", "h100-8", "--nodes", "2", "--jobscript",
                                        "slurm", "train.max_steps=1000"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  EXPECT_TRUE(outcome.out.starts_with("#!")) << outcome.out;
  for (const char* line : {"#SBATCH --nodes=2\n", "#SBATCH --ntasks-per-node=8\n",
                           "#SBATCH --cpus-per-task=14\n", "#SBATCH --gpus-per-node=8\n"})
    EXPECT_EQ(count(outcome.out, line), 1) << line << outcome.out;
  EXPECT_TRUE(std::regex_search(outcome.out, std::regex("--time=0[12]:(00|15|30|45):00")))
      << outcome.out;
  // What to recompute is left to the plan, which is to compare on the same machine.
  for (const char* setting : {"'train.max_steps=1000'", "parallel.machine=h100-8"})
    EXPECT_EQ(count(outcome.out, setting), 1) << setting << outcome.out;
}

TEST(PlanOfAJob, NeedsNoMachineToPrintOne) {
  const std::string small = "inputs/smoke/pretraining.toml";
  for (const char* scheduler : {"slurm", "pbs", "torque"}) {
    const Outcome outcome =
        plan(small, {"--jobscript", scheduler, "--nodes", "2", "--ranks-per-node", "4"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
    EXPECT_TRUE(outcome.out.starts_with("#!")) << outcome.out;
    for (const char* limit : {"#SBATCH --time=", "#PBS -l walltime="})
      EXPECT_EQ(count(outcome.out, limit), 0) << outcome.out;
    EXPECT_EQ(count(outcome.err, "warning: the job asks for 2 nodes of 4 ranks"), 1) << outcome.err;
  }
}

TEST(PlanOfAJob, AsksSlurmWhatItsNodesHave) {
  const fs::path folder = empty_folder("plan_sinfo");
  std::ofstream(folder / "sinfo") << "#!/bin/sh\necho 'main*|12|64|2|250000|2-00:00:00|(null)'\n"
                                     "echo 'short|12|64|2|250000|30:00|(null)'\n"
                                     "echo 'bare|2|2|1|1|infinite|(null)'\n";
  fs::permissions(folder / "sinfo", fs::perms::owner_all);
  const auto script = [&](std::vector<std::string> words) {
    std::vector<std::string> command = {"env",
                                        "PATH=" + folder.string() + ":/usr/bin:/bin",
                                        build_folder() / "finetune",
                                        "plan",
                                        "inputs/smoke/pretraining.toml",
                                        "--jobscript",
                                        "slurm"};
    command.insert(command.end(), words.begin(), words.end());
    return run_program(command, source_folder());
  };
  const Outcome whole = script({"--nodes", "2", "--ranks-per-node", "4", "--account", "p17"});
  EXPECT_EQ(whole.exit_code, 0) << whole.text();
  for (const char* line :
       {"#SBATCH --nodes=2\n", "#SBATCH --ntasks-per-node=4\n", "#SBATCH --cpus-per-task=8\n",
        "#SBATCH --time=48:00:00\n", "#SBATCH --account=p17\n"})
    EXPECT_EQ(count(whole.out, line), 1) << line << whole.out;
  const Outcome part = script({"--ranks-per-node", "4", "--partition", "short"});
  EXPECT_EQ(count(part.out, "#SBATCH --time=00:30:00\n#SBATCH --mem="), 1) << part.text();
  EXPECT_EQ(count(part.out, "#SBATCH --partition=short\n"), 1) << part.text();
  EXPECT_EQ(script({"--partition", "none"}).exit_code, 64);
  const Outcome bare = script({"--partition", "bare"});
  EXPECT_EQ(count(bare.out, "#SBATCH --mem="), 0) << "nobody told this Slurm of memory";
  EXPECT_EQ(count(bare.out, "#SBATCH --cpus-per-task=1\n"), 1) << bare.text();
}

TEST(PlanOnAMachine, AsksForAGpusPartOfTheNode) {
  const Outcome outcome =
      plan("inputs/recipes/llama-3.1-8b-lora-1x1.toml",
           {"--machine", "h100-8", "--ranks", "1", "--jobscript", "slurm", "train.max_steps=10"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  EXPECT_EQ(count(outcome.out, "#SBATCH --cpus-per-task=14\n"), 1) << outcome.out;
  // 90 % of an eighth of 2015 GiB.
  EXPECT_EQ(count(outcome.out, "#SBATCH --mem=232128M\n"), 1) << outcome.out;
}

TEST(PlanOnAMachine, PrintsNoJobOfNodesThatAreNotFull) {
  const Outcome outcome =
      plan(recipe, {"--machine", "h100-8", "--ranks", "20", "--jobscript", "slurm"});
  EXPECT_EQ(outcome.exit_code, 64) << outcome.text();
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(count(outcome.err, "--ranks 16 or 24"), 1) << outcome.err;
}

TEST(PlanOnAMachine, RefusesWhatTheHostsMemoryDoesNotHold) {
  const Outcome outcome =
      plan(recipe, {"--machine", "a100-80-8", "--nodes", "1", "optimizer.offload=true",
                    "precision.mode=bf16-mixed", "train.micro_batch=2", "parallel.overlap=false"});
  EXPECT_EQ(outcome.exit_code, 69) << outcome.text();
  EXPECT_EQ(count(outcome.err, "of host memory per rank"), 1) << outcome.err;
  EXPECT_EQ(count(outcome.out, "fits: "), 0) << outcome.out;
}

TEST(PlanOnAMachine, TakesNodesAndTheirRanksWithoutOne) {
  const Outcome outcome = plan(recipe, {"--nodes", "2", "--ranks-per-node", "4", "--gpu"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  EXPECT_EQ(count(outcome.out, "8 on 2 nodes"), 1) << outcome.out;
}

TEST(PlanOnAMachine, AsksForWhatTheQueueTakesWhereTheRunIsLonger) {
  const Outcome outcome = plan(recipe, {"--machine", "h100-8", "--nodes", "2", "--jobscript", "pbs",
                                        "train.max_steps=1000000"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  EXPECT_EQ(count(outcome.out, "walltime=24:00:00\n"), 1) << outcome.out;
  EXPECT_EQ(count(outcome.err, "the queue 24.0 h at most: each job of the chain continues "), 1)
      << outcome.err;
}

TEST(PlanOnAMachine, ComparesMeshesByAxisAndLink) {
  const Outcome outcome = plan(recipe, {"--machine", "h100-8", "--nodes", "2", "--meshes"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  static const std::regex sent(
      "FULL_SHARD tp 2 .* per rank\n +a rank sends fsdp [0-9.]+ GB inside the node and [0-9.]+ GB "
      "to others; tp [0-9.]+ GB inside the node\n");
  EXPECT_TRUE(std::regex_search(outcome.out, sent)) << outcome.out;
}

TEST(PlanOnAMachine, WarnsOfRareSaves) {
  const Outcome outcome =
      plan(recipe, {"--machine", "h100-8", "--nodes", "512", "checkpoint.save_minutes=1000.0",
                    "train.max_steps=100000"});
  EXPECT_EQ(count(outcome.err, "much more rarely than is best"), 1) << outcome.err;
}

TEST(PlanOnAMachine, RefusesWhatDoesNotFitAfterAllThatItKnows) {
  const Outcome outcome = plan(recipe, {"--machine", "h100-8", "--nodes", "1"});
  EXPECT_EQ(outcome.exit_code, 69) << outcome.text();
  EXPECT_EQ(count(outcome.out, "weak scaling"), 1) << outcome.out;
  EXPECT_EQ(count(outcome.err, "error: "), 1) << outcome.err;
}

TEST(PlanOnAMachine, RefusesMachinesThatAreNotThereOrTellTooLittle) {
  const Outcome unknown = plan(recipe, {"--machine", "h100"});
  EXPECT_EQ(unknown.exit_code, 64) << unknown.text();
  EXPECT_EQ(count(unknown.err, "Did you mean \"h100-8\"?"), 1) << unknown.err;
  const fs::path file = empty_folder("plan_machine") / "mine.toml";
  std::ofstream(file) << "[machine]\ngpus_per_node = 8\nbf16_tflops = 100.0\n";
  const Outcome bare = plan(recipe, {"--machine", file.string()});
  EXPECT_EQ(bare.exit_code, 78) << bare.text();
  EXPECT_EQ(count(bare.err, "it lacks memory_gb_per_s, intra_gb_per_s ("), 1) << bare.err;
  std::ofstream(file) << "[machine]\ngpus_per_node = 9000000000000000000\n";
  EXPECT_EQ(plan(recipe, {"--machine", file.string()}).exit_code, 78);
  EXPECT_EQ(plan(recipe, {"--plot", "x.svg"}).exit_code, 64) << "without a machine";
}

}  // namespace
}  // namespace finetune::tests::plan_time_test
