// SPDX-License-Identifier: Apache-2.0
// Activations in pinned host memory between forward and backward: the same bits as without,
// whatever is recomputed and shared.
#include <gtest/gtest.h>

#include <string>

#include "simulated/simulated_job.hpp"

namespace finetune::tests::simulated_offload {
namespace {

struct Case {
  std::string name;
  int ranks = 1;
  Words settings;  ///< with and without
  Words offloading = {"train.offloaded_blocks=1"};
  std::string recomputing = "none";
  std::string precision = "bf16-mixed";
  std::string family = {};
  bool has_kernels = false;
};

Job job_of(const Case& c, const std::string& kind, const Words& more) {
  const Words settings = with(with(short_run(c.precision, 4), c.settings),
                              with({"train.activation_checkpointing=" + c.recomputing}, more));
  const std::string name = "simulated/offload." + c.name + "." + kind;
  return c.family.empty() ? Job(name, settings) : family_job(c.family, name, settings);
}

/// Read and written by copies in one direction; each is counted on both sides.
std::int64_t copied(const Job& job, const std::string& direction) {
  return report_of(job).bytes[direction] / 2;
}

class OffloadedActivations : public testing::TestWithParam<Case> {};

TEST_P(OffloadedActivations, GiveTheBitsOfThoseThatStay) {
  const Case& c = GetParam();
  const Setting kernels("FINETUNE_SIMULATED_KERNELS", c.has_kernels ? "1" : "0");
  const Job staying = job_of(c, "staying", {}), offloading = job_of(c, "offloading", c.offloading);
  const Outcome expected = run_on_simulated_gpus(staying, c.ranks);
  ASSERT_EQ(expected.exit_code, 0) << expected.text();
  const Outcome outcome = run_on_simulated_gpus(offloading, c.ranks);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.text();
  expect_same_metrics(offloading, staying);
  EXPECT_TRUE(offloading.exported() == staying.exported());

  const std::int64_t there =
      copied(offloading, "copy to the host") - copied(staying, "copy to the host");
  const std::int64_t back =
      copied(offloading, "copy to the device") - copied(staying, "copy to the device");
  EXPECT_GT(there, 0);
  EXPECT_EQ(back, there);
  EXPECT_EQ(report_of(offloading).num_syncs, report_of(staying).num_syncs)
      << "the host waits for copies";
}

std::vector<Case> cases() {
  const Words both = {"train.offloaded_blocks=2"};
  const Words lora = {"adapter.name=lora", "adapter.lora_r=4", "optimizer.lr=2e-2"};
  return {
      {"one", 1, {}},
      {"all", 1, {}, both},
      {"fp32", 1, {}, both, "none", "32-true"},
      {"fp16", 1, {}, both, "none", "16-mixed"},
      {"fp8", 1, {}, both, "none", "fp8-mixed"},
      {"selective", 1, {}, both, "selective"},
      {"full", 1, {}, both, "full"},
      {"rest", 1, {"train.recomputed_blocks=1"}},
      {"all_recomputed", 1, {"train.recomputed_blocks=2"}},
      {"sharded", 2, {}, both},
      {"topology", 2, {"train.determinism=topology"}, both},
      {"packing", 1, {"data.packing=true"}, both},
      {"lora_dropout", 1, with(lora, {"adapter.lora_dropout=0.1"}), both},
      {"dora", 1, with(lora, {"adapter.use_dora=true"}), both},
      {"ia3", 1, {"adapter.name=ia3", "optimizer.lr=2e-2"}, both},
      {"qlora", 1, {"adapter.name=qlora", "adapter.lora_r=4"}, both},
      {"normed", 1, {}, both, "none", "bf16-mixed", "qwen3"},
      {"experts", 2, {}, both, "none", "bf16-mixed", "qwen3_moe"},
      {"experts_recomputed", 1, {}, both, "full", "bf16-mixed", "qwen3_moe"},
      {"shared_experts", 1, {}, both, "selective", "32-true", "llama4"},
      {"experts_ep", 2, {"parallel.ep=2"}, both, "none", "bf16-mixed", "qwen3_moe"},
      {"tp", 2, {"parallel.tp=2"}, both},
      {"context", 2, {"parallel.cp=2"}, both},
      {"kernels", 1, {}, both, "none", "bf16-mixed", {}, true},
      {"with_the_optimizer", 1, {"optimizer.offload=true"}, both},
  };
}

INSTANTIATE_TEST_SUITE_P(Modes, OffloadedActivations, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace finetune::tests::simulated_offload
