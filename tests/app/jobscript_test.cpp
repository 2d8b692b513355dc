// SPDX-License-Identifier: Apache-2.0
#include "jobscript.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "core/error.hpp"
#include "support/folders.hpp"
#include "support/messages.hpp"

namespace finetune::app::jobscript_test {
namespace {

using finetune::tests::expect_words;

namespace fs = std::filesystem;

Job job() {
  return {.deck = "my deck's.toml",
          .settings = {"train.seed=1", "a.b=x y;z"},
          .num_nodes = 2,
          .ranks_per_node = 4,
          .cores_per_rank = 8,
          .gpus_per_node = 4,
          .walltime_s = 100 * 3600 + 61,
          .node_memory_bytes = (std::int64_t{3} << 20) + 1};
}

std::string filled(const std::string& scheduler, const Job& job) {
  return jobscript(scheduler, job, tests::source_folder() / "jobscripts");
}

/// The lines before the first command that begin with `mark`.
std::string directives(const std::string& text, const std::string& mark) {
  std::string found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line) && (line.empty() || line[0] == '#');)
    if (line.starts_with(mark)) found += line.substr(mark.size() + 1) + "\n";
  return found;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Jobscript, SlurmIsAskedForNodesRanksCoresGpusTimeAndMemory) {
  EXPECT_EQ(directives(filled("slurm", job()), "#SBATCH"),
            "--job-name=finetune\n--output=%x-%j.log\n--open-mode=append\n--requeue\n"
            "--signal=B:USR1@120\n--nodes=2\n--ntasks-per-node=4\n--cpus-per-task=8\n"
            "--time=100:01:01\n--gpus-per-node=4\n--mem=4M\n");
}

TEST(Jobscript, AShortJobOfSlurmIsWarnedLater) {
  Job brief = job();
  brief.walltime_s = 100;
  EXPECT_TRUE(has(directives(filled("slurm", brief), "#SBATCH"), "--signal=B:USR1@20\n"));
}

TEST(Jobscript, PbsIsAskedForChunksOfANode) {
  EXPECT_TRUE(has(directives(filled("pbs", job()), "#PBS"),
                  "-l select=2:ncpus=32:mpiprocs=4:ompthreads=8:ngpus=4:mem=4mb\n"
                  "-l place=scatter\n-l walltime=100:01:01\n"));
}

TEST(Jobscript, TorqueIsAskedForCoresANodeAndTheMemoryOfAll) {
  const std::string text = filled("torque", job());
  EXPECT_TRUE(has(directives(text, "#PBS"),
                  "-l nodes=2:ppn=32:gpus=4\n-l walltime=100:01:01\n-l mem=8mb\n"));
  EXPECT_TRUE(has(text, "\nexport FINETUNE_CORES_PER_RANK=8\n"));
}

TEST(Jobscript, WhatIsNotSaidIsNotAskedFor) {
  Job small = job();
  small.gpus_per_node = 0;
  small.node_memory_bytes = 0;
  for (const char* scheduler : {"slurm", "pbs", "torque"}) {
    const std::string text = filled(scheduler, small);
    const std::string asked = directives(text, "#SBATCH") + directives(text, "#PBS");
    EXPECT_FALSE(has(asked, "gpus")) << scheduler;
    EXPECT_FALSE(has(asked, "mem")) << scheduler;
  }
}

TEST(Jobscript, TimeAndCoresThatNobodySaysAreLeftToTheScheduler) {
  Job open = job();
  open.walltime_s = 0;
  open.cores_per_rank = 0;
  EXPECT_FALSE(has(directives(filled("slurm", open), "#SBATCH"), "--time"));
  EXPECT_FALSE(has(directives(filled("slurm", open), "#SBATCH"), "--cpus-per-task"));
  EXPECT_FALSE(has(directives(filled("pbs", open), "#PBS"), "walltime"));
  EXPECT_TRUE(has(directives(filled("pbs", open), "#PBS"), "select=2:ncpus=4:mpiprocs=4"));
  EXPECT_FALSE(has(directives(filled("torque", open), "#PBS"), "walltime"));
  EXPECT_TRUE(has(filled("torque", open), "\nexport FINETUNE_CORES_PER_RANK=1\n"));
}

TEST(Jobscript, AccountQueueAndMoreOptionsAreDirectives) {
  Job mine = job();
  mine.account = "p-17";
  mine.queue = "long";
  mine.options = {"--qos=high", "-x n[3-4]"};
  EXPECT_TRUE(directives(filled("slurm", mine), "#SBATCH")
                  .ends_with("--account=p-17\n--partition=long\n--qos=high\n-x n[3-4]\n"));
  mine.options = {"-l filesystems=home", "-m ae"};
  for (const char* scheduler : {"pbs", "torque"}) {
    const std::string text = filled(scheduler, mine);
    EXPECT_TRUE(
        directives(text, "#PBS").ends_with("-A p-17\n-q long\n-l filesystems=home\n-m ae\n"))
        << scheduler;
    // The next job has account, queue and resources by itself.
    EXPECT_TRUE(has(text, "\nexport FINETUNE_QSUB_OPTIONS='-m ae'\n")) << scheduler;
  }
  EXPECT_FALSE(has(filled("pbs", job()), "FINETUNE_QSUB_OPTIONS="));
}

TEST(Jobscript, AnOptionOfSeveralLinesIsRejected) {
  for (const char* value : {"a\nrm x", "a\r", ""}) {
    Job bad = job();
    bad.options = {value};
    EXPECT_THROW(filled("slurm", bad), core::Error) << value;
  }
}

TEST(Jobscript, ItsFirstCommandsSayWhereTheProgramIsAndWhatItTrains) {
  for (const char* scheduler : {"slurm", "pbs", "torque"}) {
    const std::string text = filled(scheduler, job());
    const std::string root = tests::source_folder().lexically_normal().string();
    EXPECT_TRUE(has(text, "\nset -euo pipefail\n\nFINETUNE_ROOT='" + root + "'\n")) << scheduler;
    EXPECT_TRUE(
        has(text, "\n[ $# -gt 0 ] || set -- 'my deck'\\''s.toml' 'train.seed=1' 'a.b=x y;z'\n"))
        << scheduler;
  }
}

TEST(Jobscript, TheShellCanReadIt) {
  for (const std::string scheduler : {"slurm", "pbs", "torque"}) {
    const fs::path script = fs::path(testing::TempDir()) / ("finetune-" + scheduler + ".sh");
    std::ofstream(script) << filled(scheduler, job());
    EXPECT_EQ(std::system(("bash -n " + script.string()).c_str()), 0) << scheduler;
    const std::string check =
        "! command -v shellcheck >/dev/null || shellcheck --external-sources --source-path=" +
        (tests::source_folder() / "jobscripts" / scheduler).string() + " ";
    EXPECT_EQ(std::system((check + script.string()).c_str()), 0) << scheduler;
    fs::remove(script);
  }
}

TEST(Jobscript, AnUnknownSchedulerIsRefusedWithThoseThereAre) {
  try {
    filled("lsf", job());
    FAIL() << "there is no script for LSF";
  } catch (const core::Error& error) {
    EXPECT_EQ(error.kind(), core::ErrorKind::command_line);
    expect_words(error.what());
  }
}

TEST(Jobscript, AScriptThatIsNotThereIsNamed) {
  try {
    jobscript("slurm", job(), "/nowhere");
    FAIL() << "there is nothing";
  } catch (const core::Error& error) {
    EXPECT_EQ(error.kind(), core::ErrorKind::environment);
    EXPECT_TRUE(has(error.what(), "/nowhere/slurm/train.sh")) << error.what();
  }
}

}  // namespace
}  // namespace finetune::app::jobscript_test
