// SPDX-License-Identifier: Apache-2.0
// Commands on simulated GPUs: what they merge and answer is what the CPU does.
#include <gtest/gtest.h>

#include <string>

#include "simulated/simulated_job.hpp"
#include "support/golden.hpp"
#include "weights/model_files.hpp"

namespace finetune::tests::simulated_commands {
namespace {

/// All tensors of two folders, element by element.
void expect_near(const std::filesystem::path& a, const std::filesystem::path& b, double tolerance) {
  const auto of_a = weights::ModelFiles::open(a), of_b = weights::ModelFiles::open(b);
  ASSERT_EQ(of_a.names(), of_b.names());
  EXPECT_FALSE(of_a.names().empty());
  for (const std::string& name : of_a.names())
    EXPECT_LE(largest_difference(read_golden<float>(of_a, name), read_golden<float>(of_b, name)),
              tolerance)
        << name;
}

TEST(SimulatedCommands, MergeAsTheCpuDoesIfAsked) {
  for (const std::string adapter : {"lora", "dora", "qlora"}) {
    Words settings = with(short_run("32-true", 2), {"adapter.lora_r=4", "optimizer.lr=2e-2"});
    if (adapter == "dora") settings.push_back("adapter.use_dora=true");
    settings.push_back("adapter.name=" + std::string(adapter == "qlora" ? "qlora" : "lora"));
    const Job job("simulated/merge." + adapter, settings);
    ASSERT_EQ(job.run(1).exit_code, 0);
    const auto merge = [&](const std::string& to, const Words& more) {
      const Words words = with({"export", "output", to, "--merge", "--dtype", "float32"}, more);
      const Setting report("FINETUNE_SIMULATED_REPORT", (job.folder() / to).c_str());
      const Outcome outcome = run_program(on_simulated_gpus(finetune_on(1, words)), job.folder());
      EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
      return count(outcome.out, "merges on GPU 0");
    };
    EXPECT_EQ(merge("on_cpu", {}), 0) << "its files are the same everywhere";
    EXPECT_EQ(merge("on_gpu", {"--device", "gpu"}), 1);
    EXPECT_GT(read_report(job.folder() / "on_gpu.0").num_launches, 0);
    EXPECT_FALSE(std::filesystem::exists(job.folder() / "on_cpu.0"));
    expect_near(job.folder() / "on_gpu", job.folder() / "on_cpu", 1e-6);
  }
}

TEST(SimulatedCommands, AnswerAsTheCpuDoes) {
  const Job job("simulated/answers", {});
  const Words words = {"generate", "model", "Count from 3.", "--max-tokens", "8"};
  const Setting to("FINETUNE_SIMULATED_REPORT", (job.folder() / "report").c_str());
  const Outcome on_cpu = run_program(finetune_on(1, words), job.folder());
  const Outcome on_gpu = run_program(on_simulated_gpus(finetune_on(1, words)), job.folder());
  EXPECT_EQ(on_cpu.exit_code, 0) << on_cpu.text();
  EXPECT_EQ(on_gpu.exit_code, 0) << on_gpu.text();
  EXPECT_EQ(on_gpu.out, on_cpu.out);
  EXPECT_GT(report_of(job).num_launches, 0);
  // Written by programs that asked the device for anything.
  std::filesystem::remove(job.folder() / "report.0");
  Words on_host = words;
  on_host.insert(on_host.end(), {"--device", "cpu"});
  EXPECT_EQ(run_program(on_simulated_gpus(finetune_on(1, on_host)), job.folder()).out, on_cpu.out);
  EXPECT_FALSE(std::filesystem::exists(job.folder() / "report.0"));
  on_host.back() = "gpu";
  const Outcome without = run_program(finetune_on(1, on_host), job.folder());
  EXPECT_EQ(without.exit_code, 69) << without.text();
  on_host.back() = "tpu";
  EXPECT_EQ(run_program(finetune_on(1, on_host), job.folder()).exit_code, 64);
}

}  // namespace
}  // namespace finetune::tests::simulated_commands
