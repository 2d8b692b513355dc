// SPDX-License-Identifier: Apache-2.0
// A program that was built for another processor ends with a message and 69 before it executes
// anything that this one lacks. The probe is built for XOP and AVX-512, which no processor has both
// of.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "support/folders.hpp"
#include "support/messages.hpp"
#include "support/run_program.hpp"

namespace finetune::tests::processor_check_test {
namespace {

constexpr int illegal_instruction = 128 + 4;

const std::filesystem::path programs = build_folder() / "tests";

Outcome run_probe(const std::string& name, std::vector<std::string> environment = {}) {
  std::vector<std::string> words = {"env"};
  for (const char* variable :
       {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PALS_LOCAL_RANKID", "SLURM_LOCALID"}) {
    words.insert(words.end(), {"-u", variable});
  }
  words.insert(words.end(), environment.begin(), environment.end());
  words.push_back(programs / name);
  return run_program(words, programs);
}

TEST(ProcessorCheck, LetsAProgramRunWhereItWasBuilt) {
  const Outcome outcome = run_probe("processor_probe");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.out, "main was reached, 7\n");
  EXPECT_EQ(outcome.err, "");
}

TEST(ProcessorCheck, WithoutItAProgramForAnotherProcessorIsKilled) {
  EXPECT_EQ(run_probe("processor_probe_unchecked").exit_code, illegal_instruction);
}

TEST(ProcessorCheck, ComesBeforeTheInitialisersOfProgramAndLibraries) {
  const Outcome outcome = run_probe("processor_probe_elsewhere");
  EXPECT_EQ(outcome.exit_code, 69);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err.rfind("error: ", 0), 0U) << outcome.err;
  EXPECT_EQ(count(outcome.err, "\n"), 1) << outcome.err;
  // The other words are this machine's.
  expect_facts(outcome.err, "error", {"FINETUNE_ARCH=the-other-one", "x86-64"});
}

TEST(ProcessorCheck, IsReportedByOneRankOfANode) {
  EXPECT_EQ(count(run_probe("processor_probe_elsewhere", {"SLURM_LOCALID=0"}).err, "error: "), 1);
  // In a job of Slurm's, mpirun's ranks have the batch script's number too.
  EXPECT_EQ(count(run_probe("processor_probe_elsewhere",
                            {"SLURM_LOCALID=0", "OMPI_COMM_WORLD_LOCAL_RANK=0"})
                      .err,
                  "error: "),
            1);
  const Outcome silent =
      run_probe("processor_probe_elsewhere", {"SLURM_LOCALID=0", "OMPI_COMM_WORLD_LOCAL_RANK=1"});
  EXPECT_EQ(silent.exit_code, 69);
  EXPECT_EQ(silent.text(), "");
}

}  // namespace
}  // namespace finetune::tests::processor_check_test
