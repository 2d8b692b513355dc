// SPDX-License-Identifier: Apache-2.0
// What a run tells of its GPUs, by a library in the place of NVIDIA's, and what of them it refuses.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "core/json.hpp"
#include "simulated/simulated_job.hpp"

namespace finetune::tests::simulated_devices {
namespace {

std::int64_t count(const std::string& text, const std::string& part) {
  std::int64_t found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size()))
    ++found;
  return found;
}

/// Runs on two GPUs that answer so.
Outcome run_with(const Job& job, const std::string& answers) {
  write_file(job.folder() / "answers", answers);
  const Setting answering("FINETUNE_NVML_STAND_IN", (job.folder() / "answers").string());
  const Setting library("LD_LIBRARY_PATH", (build_folder() / "tests/nvml").string());
  return run_on_simulated_gpus(job, 2);
}

core::Json devices_in(const Job& job) {
  std::ifstream file(job.output() / "metrics.jsonl");
  core::Json last;
  for (std::string line; std::getline(file, line);) {
    const core::Json row = core::parse_json(line, "metrics.jsonl");
    if (row.contains("devices")) last = row.at("devices");
  }
  return last;
}

const Words often = {"train.max_steps=6", "metrics.log_steps=1", "metrics.devices_every_s=0.001",
                     "checkpoint.save_steps=0"};

TEST(Devices, AreToldWithThoseThatAreThrottled) {
  const Job job("simulated/devices", often);
  const Outcome outcome = run_with(job,
                                   "* utilisation 90\n* power 400000\n* clock 1755\n"
                                   "simulated-vm-1 clock 1750\nsimulated-vm-1 slow 0x40\n");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.text();
  EXPECT_EQ(count(outcome.err,
                  "is slow, and so is the whole run: its clocks are lowered: heat "
                  "(hardware). Ask nvidia-smi"),
            1)
      << outcome.err;
  EXPECT_EQ(count(outcome.err, "the GPU of rank 1 on "), 1) << outcome.err;
  const core::Json devices = devices_in(job);
  EXPECT_EQ(devices.at("gpu_power_w").at(1), 400);
  EXPECT_EQ(devices.at("gpu_clock_mhz").at(0), 1750);
  EXPECT_EQ(devices.at("slow").at(0).at("rank"), 1);
  EXPECT_GT(devices.at("rss_bytes").at(0).get<double>(), 1 << 20);
  // By looking at the report alone.
  EXPECT_EQ(
      count(read_file(job.output() / "report.html"), "its clocks are lowered: heat (hardware)"), 2)
      << "the table, and the warning";
  const Outcome watched = run_program(
      {(build_folder() / "finetune").string(), "watch", job.output().string(), "--once"},
      job.folder());
  EXPECT_EQ(count(watched.out, "GPUs busy 90 %, 400 W, 1755 MHz"), 1) << watched.text();
}

TEST(Devices, HaveTheirMemoryAndOperatorsInProfiles) {
  const Job job("simulated/profile", {"train.max_steps=6", "checkpoint.save_steps=0",
                                      "profile.wait=2", "profile.warmup=1", "profile.active=2"});
  const Outcome outcome = run_on_simulated_gpus(job, 2);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.text();
  const core::Json timeline =
      core::parse_json(read_file(job.output() / "profile/memory.steps-4-5.json"), "the timeline");
  double highest = 0;
  for (const core::Json& mib : timeline.at("mib").at("tensors"))
    highest = std::max(highest, mib.get<double>());
  EXPECT_GT(highest, 0.1);
  const std::string trace = read_file(job.output() / "profile/rank-00001.steps-4-5.json");
  EXPECT_GT(count(trace, "aten::"), 0);
}

TEST(Devices, AreNotLookedAtWhereNobodyWantsTo) {
  const Job job("simulated/no_devices", with(often, {"metrics.devices_every_s=0"}));
  const Outcome outcome = run_with(job, "* power 400000\n* slow 0x40\n");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.text();
  EXPECT_TRUE(devices_in(job).is_null());
  EXPECT_EQ(count(outcome.err, "is slow"), 0);
}

TEST(Devices, ChangeNoNumber) {
  const Job with_them("simulated/devices_on", often);
  const Job without("simulated/devices_off", with(often, {"metrics.devices_every_s=0"}));
  ASSERT_EQ(run_with(with_them, "* power 400000\n").exit_code, 0);
  ASSERT_EQ(run_with(without, "").exit_code, 0);
  expect_same_metrics(with_them, without);
  EXPECT_TRUE(with_them.exported() == without.exported());
}

TEST(Devices, WithoutProductsOfEightBitsRefuseThemWithAReason) {
  const auto refusal = [](const char* capability, const std::string& scaling) {
    const Setting old("FINETUNE_SIMULATED_CAPABILITY", capability);
    const Job job(std::string("simulated/fp8_on_") + capability,
                  with(short_run("fp8-mixed", 2), {"precision.fp8_scaling=" + scaling}));
    const Outcome outcome = run_on_simulated_gpus(job, 2);
    EXPECT_EQ(outcome.exit_code, 69) << outcome.text();
    return outcome.err;
  };
  EXPECT_EQ(count(refusal("80", "rowwise"),
                  "its GPU has compute capability 8.0 (products of 8 bits need 8.9). Set "
                  "precision.mode = \"bf16-mixed\"."),
            1);
  EXPECT_EQ(count(refusal("89", "block"),
                  "with a scale per block need 9.x). Set precision.fp8_scaling = \"rowwise\"."),
            1);
  const Setting older("FINETUNE_SIMULATED_CUDA", "12.8");
  EXPECT_EQ(count(refusal("90", "block"),
                  "libtorch was built for CUDA 12.8 (products of 8 bits with a scale per block "
                  "came with CUDA 12.9). Set precision.fp8_scaling = \"rowwise\""),
            1);
}

}  // namespace
}  // namespace finetune::tests::simulated_devices
