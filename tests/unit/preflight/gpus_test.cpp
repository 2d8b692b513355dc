// SPDX-License-Identifier: Apache-2.0
#include "preflight/detail/gpus.hpp"

#include <gtest/gtest.h>

#include "core/nvml.hpp"
#include "jobs.hpp"
#include "preflight/judge.hpp"

namespace finetune::preflight::gpus_test {
namespace {

Gpu healthy_gpu(int index) {
  return {.index = index,
          .uuid = "GPU-" + std::to_string(index),
          .name = "H100",
          .driver = "550.54",
          .clock_mhz = 1980,
          .uncorrected_errors = 0,
          .pending_pages = 0,
          .power_limit_w = 700,
          .default_power_limit_w = 700,
          .memory_bytes = std::int64_t{80} << 30,
          .free_bytes = std::int64_t{79} << 30};
}

/// Three nodes of two ranks with a GPU each.
JobFacts gpu_job() {
  JobFacts job = healthy_job(3, 2);
  for (Facts& facts : job.ranks) {
    facts.num_gpus = 2;
    if (facts.of_node.is_from_leader) facts.of_node.gpus = {healthy_gpu(0), healthy_gpu(1)};
    facts.of_node.has_nvml = true;
  }
  return job;
}

TEST(Gpus, ThatAreAlikeAndHealthyAreGood) {
  const Finding finding = judge_gpus(gpu_job());
  EXPECT_EQ(finding.grade(), Grade::good);
  EXPECT_EQ(finding.text, "2 x H100, 1980 MHz, driver 550.54 on every node");
}

TEST(Gpus, ThatAreNotThereAreNoProblem) {
  EXPECT_EQ(judge_gpus(healthy_job(1, 2)).text, "no GPU (and no NVML)");
  EXPECT_EQ(judge_gpus(healthy_job(1, 2)).grade(), Grade::good);
}

void expect_told(const JobFacts& job, Grade grade, const std::string& part) {
  const Finding finding = judge_gpus(job);
  ASSERT_EQ(finding.problems.size(), 1u);
  EXPECT_EQ(finding.grade(), grade);
  EXPECT_TRUE(holds(first_line(finding), part)) << first_line(finding);
}

TEST(Gpus, WithATroubleAreNamed) {
  JobFacts job = gpu_job();
  Gpu& gpu = job.ranks[2].of_node.gpus[1];
  gpu.uncorrected_errors = 2;
  expect_told(job, Grade::bad, "n1: GPU 1 (GPU-1): has 2 uncorrected memory errors");
  gpu = healthy_gpu(1);
  gpu.pending_pages = 1;
  expect_told(job, Grade::bad, "n1: GPU 1 (GPU-1): has memory that is to be taken out of use");
  gpu = healthy_gpu(1);
  gpu.slowed_by_hardware = core::slow_reasons(0x1 | 0x4 | 0x40).by_hardware;
  expect_told(job, Grade::warning, "is slowed down: heat (hardware)");
  gpu = healthy_gpu(1);
  gpu.slowed_by_limits = core::slow_reasons(0x1 | 0x4 | 0x40).by_limits;
  expect_told(job, Grade::note, "keeps to a limit: power cap");
  gpu = healthy_gpu(1);
  gpu.foreign = {"77 (python)"};
  expect_told(job, Grade::bad, "is used by 77 (python)");
  gpu = healthy_gpu(1);
  gpu.power_limit_w = 400;
  expect_told(job, Grade::warning, "may take 400 W (its usual limit is 700 W)");
  gpu = healthy_gpu(1);
  gpu.free_bytes = std::int64_t{40} << 30;
  expect_told(job, Grade::warning, "has 40.0 GiB of free memory (the others have 79.0 GiB)");
}

TEST(Gpus, OfAnotherKindNumberOrDriverAreNamed) {
  JobFacts job = gpu_job();
  job.ranks[4].of_node.gpus[0].driver = "535.1";
  expect_told(job, Grade::bad, "n2: has other GPUs than the other nodes");
  job = gpu_job();
  job.ranks[4].of_node.gpus.pop_back();
  expect_told(job, Grade::bad, "(1 x H100, 1980 MHz, driver 550.54; n0 has 2 x H100");
  job = gpu_job();
  job.ranks[3].num_gpus = 0;
  expect_told(job, Grade::bad, "n1: rank 3: sees 0 GPUs (rank 0 sees 2)");
}

/// The ranks compute on one GPU of two a node.
JobFacts job_on_some() {
  JobFacts job = gpu_job();
  for (Facts& facts : job.ranks)
    facts.gpu = "GPU-0";
  return job;
}

TEST(Gpus, OfOtherJobsAreOnlyNoted) {
  JobFacts job = job_on_some();
  EXPECT_EQ(judge_gpus(job).grade(), Grade::good);
  Gpu& other = job.ranks[2].of_node.gpus[1];
  other.foreign = {"77 (python)"};
  other.free_bytes = 0;
  other.slowed_by_hardware = {"power brake"};
  EXPECT_EQ(judge_gpus(job).grade(), Grade::note);
  other = healthy_gpu(1);
  job.ranks[2].of_node.gpus[0].foreign = {"77 (python)"};
  expect_told(job, Grade::bad, "n1: GPU 0 (GPU-0): is used by 77 (python)");
}

TEST(Gpus, MustBeAlikeWhereTheJobComputes) {
  JobFacts job = job_on_some();
  job.ranks[4].of_node.gpus.pop_back();
  expect_told(job, Grade::note, "n2: has other GPUs");
  job = job_on_some();
  job.ranks[4].of_node.gpus[0].name = "A100";
  expect_told(job, Grade::bad, "n2: has other GPUs");
}

TEST(Gpus, OfWhichOnlyPartsAreUsedAllCount) {
  JobFacts job = gpu_job();
  for (Facts& facts : job.ranks)
    facts.gpu = "MIG-1";
  job.ranks[2].of_node.gpus[1].foreign = {"77 (python)"};
  expect_told(job, Grade::bad, "n1: GPU 1 (GPU-1): is used by 77 (python)");
}

TEST(Gpus, ThatAreLostAreAFaultOfTheNodeWhoeverUsesThem) {
  JobFacts job = job_on_some();
  job.ranks[2].of_node.gpus.push_back({.index = 2, .lost = core::lost_by(15)});
  expect_told(job, Grade::bad, "n1: GPU 2: has fallen off the bus");
  EXPECT_EQ(core::lost_by(16), "needs a reset");
  EXPECT_EQ(core::lost_by(4), "") << "another job's";
  EXPECT_EQ(core::lost_by(999), "does not answer (NVML error 999)");
}

TEST(Gpus, AreJudgedBeforeAnythingIsChosenAlsoIfNoRankSeesThem) {
  JobFacts job = gpu_job();
  for (Facts& facts : job.ranks)
    facts.num_gpus = 0;
  job.ranks[2].of_node.gpus[1].uncorrected_errors = 3;
  EXPECT_EQ(judge_gpus(job).grade(), Grade::note) << "it computes on the CPU";
  job.are_devices_chosen = false;
  expect_told(job, Grade::bad, "n1: GPU 1 (GPU-1): has 3 uncorrected memory errors");
}

TEST(Gpus, AreOnlyNotedByARunOnTheCpu) {
  JobFacts job = gpu_job();
  for (Facts& facts : job.ranks)
    facts.num_gpus = 0;
  job.ranks[2].of_node.gpus[1].foreign = {"77 (python)"};
  job.ranks[4].of_node.gpus.pop_back();
  EXPECT_EQ(judge_gpus(job).grade(), Grade::note);
  EXPECT_EQ(judge_gpus(job).problems.size(), 2u);
}

TEST(Nvml, IsAskedWithoutHarmWhereThereIsNone) {
  const NvmlAnswer answer = ask_nvml();
  EXPECT_TRUE(answer.has_library || answer.gpus.empty());
}

}  // namespace
}  // namespace finetune::preflight::gpus_test
