// SPDX-License-Identifier: Apache-2.0
// What a step may ask of a GPU: so many launches, one wait of the host, and no operation that CUDA
// lacks or that answers differently each time.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "simulated/cuda_kernels.hpp"
#include "simulated/simulated_job.hpp"

namespace finetune::tests::simulated_budget {
namespace {

struct Case {
  std::string name;
  Words settings;
  std::int64_t most_launches = 0;  ///< per step of two micro-batches of a model of two blocks
  std::int64_t most_syncs = 1;
  std::string family = {};
  int ranks = 1;  ///< the first of them is counted
};

class Step : public testing::TestWithParam<Case> {
 protected:
  /// What a run of so many steps asks; a test may ask for what another has run.
  static const Asked& run(int steps) {
    static std::map<std::pair<std::string, int>, Asked> known;
    const Case& c = GetParam();
    auto [found, is_new] = known.try_emplace({c.name, steps});
    if (!is_new) return found->second;
    Words settings = {"precision.mode=bf16-mixed", "train.global_batch=4", "train.micro_batch=2",
                      "checkpoint.save_steps=0", "train.max_steps=" + std::to_string(steps)};
    settings.insert(settings.end(), c.settings.begin(), c.settings.end());
    const std::string name = "simulated/budget." + c.name;
    const Job job = c.family.empty() ? Job(name, settings) : family_job(c.family, name, settings);
    const Outcome outcome = run_on_simulated_gpus(job, GetParam().ranks);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
    return found->second = report_of(job);
  }

  static constexpr int few = 3, many = 7;
};

TEST_P(Step, StaysWithinItsBudgetOfLaunchesAndWaits) {
  const Asked& before = run(few);
  const Asked& after = run(many);
  const auto per_step = [](std::int64_t b, std::int64_t a) {
    return static_cast<double>(a - b) / (many - few);
  };
  EXPECT_GT(after.num_launches, before.num_launches);
  EXPECT_LE(per_step(before.num_launches, after.num_launches), GetParam().most_launches);
  std::string by;
  for (const auto& [name, count] : after.syncs) {
    const auto earlier = before.syncs.find(name);
    const std::int64_t more = count - (earlier == before.syncs.end() ? 0 : earlier->second);
    if (more > 0) by += name + " " + std::to_string(more) + ", ";
  }
  EXPECT_LE(per_step(before.num_syncs, after.num_syncs), GetParam().most_syncs)
      << "in " << many - few << " steps: " << by;
}

TEST_P(Step, AsksForWhatCudaHasAndAnswersAlike) {
  const Asked& asked = run(few);
  ASSERT_FALSE(asked.launches.empty());
  for (const auto& [operation, count] : asked.launches) {
    EXPECT_TRUE(has_cuda_kernel(operation)) << operation << " has no kernel for CUDA";
    EXPECT_FALSE(alerts_as_nondeterministic(operation)) << operation;
  }
}

/// Launches of a kernel in three steps, whatever its types.
std::int64_t launches_of(const std::string& kernel, const Asked& asked) {
  std::int64_t sum = 0;
  for (const auto& [name, count] : asked.launches)
    if (name == "kernel:" + kernel || name.starts_with("kernel:" + kernel + "<")) sum += count;
  return sum;
}

// An embedding, two blocks and a head; steps of two micro-batches.
TEST(Kernels, OfAStepAreOneLaunchPerUnit) {
  constexpr std::int64_t steps = 3, units = 4, passes = 2;
  const Setting kernels("FINETUNE_SIMULATED_KERNELS", "1");
  const Job job("simulated/kernels",
                {"train.max_steps=3", "checkpoint.save_steps=0", "precision.mode=bf16-mixed",
                 "train.global_batch=4", "train.micro_batch=2", "optimizer.name=adamw8bit",
                 "train.determinism=topology"});
  const Outcome outcome = run_on_simulated_gpus(job, 1);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  Asked asked = report_of(job);
  EXPECT_EQ(launches_of("SquaresOfTeam", asked), steps * units);
  EXPECT_EQ(launches_of("of_8_bits::StepOfTeam", asked), steps * units);
  EXPECT_EQ(launches_of("ElementToFixed", asked), steps * units * passes);
  // For the norm, and for the step.
  EXPECT_EQ(launches_of("OfOne<FromFixed>", asked), 2 * steps * units);
  EXPECT_EQ(launches_of("AddColumn", asked), steps * passes);
  EXPECT_EQ(asked.launches["aten::bucketize.Tensor"], 0);
}

// Weights and two moments of every trained unit are what a checkpoint copies to the host; a new run
// has none to read.
TEST(Start, CopiesNoStatesToTheHostBeforeACheckpointIsWritten) {
  const Job job("simulated/start", {"train.max_steps=1", "checkpoint.save_steps=0"});
  const Outcome outcome = run_on_simulated_gpus(job, 1);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  constexpr std::int64_t states = 3, units = 4, steps = 1;
  EXPECT_LE(report_of(job).syncs["copy to the host"], states * units + steps);
}

TEST(CudaKernels, AreLookedForWhereTheyWouldBe) {
  EXPECT_TRUE(has_cuda_kernel("aten::mm.out"));
  EXPECT_TRUE(has_cuda_kernel("aten::zero_"));
  EXPECT_FALSE(has_cuda_kernel("aten::_scaled_dot_product_flash_attention_for_cpu"));
  EXPECT_TRUE(alerts_as_nondeterministic("aten::histc"));
  EXPECT_FALSE(alerts_as_nondeterministic("aten::index.Tensor"));
}

TEST(CudaKernels, AreThoseOfTheLibraryAndNotOnlyOfItsHeaders) {
  const CudaLibrary& library = cuda_library();
  if (!library.was_asked())
    GTEST_SKIP() << "libtorch's headers were asked, as its library for CUDA cannot be loaded: "
                 << library.problem;
  EXPECT_EQ(library.kernels.at("aten::_flash_attention_forward"), "cuda");
  EXPECT_EQ(library.kernels.at("aten::linear"), "composite");
  // Every call was read, and what is known without the library is true of it.
  EXPECT_FALSE(library.alerts.contains("unknown"));
  EXPECT_TRUE(library.alerts.contains("scatter_reduce_cuda_kernel"));
  for (const std::string& name : known_alerts())
    EXPECT_TRUE(alerts_as_nondeterministic("aten::" + name)) << name;
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"full", {}, 720},
      {"fp32", {"precision.mode=32-true"}, 720},
      {"bf16_true", {"precision.mode=bf16-true"}, 1450},
      {"fp16", {"precision.mode=16-mixed"}, 800},
      {"fp8", {"precision.mode=fp8-mixed"}, 1400},
      {"packing", {"data.packing=true"}, 720},
      {"recompute", {"train.activation_checkpointing=full"}, 900},
      {"window", {}, 800, 1, "mistral"},
      // All experts by one launch per product, which is told on the device how many tokens each
      // has.
      {"experts", {}, 1050, 1, "qwen3_moe"},
      {"fused_experts", {}, 950, 1, "llama4"},
      {"biased_experts", {}, 1100, 1, "gpt_oss"},
      {"experts_in_mxfp4", {"adapter.name=lora"}, 1100, 1, "gpt_oss_mxfp4"},
      {"frozen_experts", {"adapter.name=lora"}, 1100, 1, "qwen3_moe"},
      {"fp8_experts", {"precision.mode=fp8-mixed"}, 2000, 1, "qwen3_moe"},
      {"fp8_frozen_experts",
       {"precision.mode=fp8-mixed", "adapter.name=lora"},
       2000,
       1,
       "qwen3_moe"},
      // Without the kernel a layer's counts are waited for in each pass.
      {"experts_fp32", {"precision.mode=32-true"}, 4000, 3, "qwen3_moe"},
      {"lora", {"adapter.name=lora"}, 780},
      {"lora_dropout", {"adapter.name=lora", "adapter.lora_dropout=0.1"}, 8300},
      {"dora", {"adapter.name=lora", "adapter.use_dora=true"}, 2000},
      {"qlora", {"adapter.name=qlora"}, 1300},
      {"adamw8bit", {"optimizer.name=adamw8bit"}, 950},
      {"lion", {"optimizer.name=lion"}, 720},
      // The optimizer computes on the host, and waits for each of four units' gradients, which is
      // on its way while another unit is updated.
      {"offload", {"optimizer.offload=true"}, 720, 5},
      // Copies to the host and back, which nobody waits for.
      {"offloaded_blocks",
       {"train.activation_checkpointing=none", "train.offloaded_blocks=2"},
       820},
      // The exact norm is many small sums of integers.
      {"topology", {"train.determinism=topology"}, 1050},
      {"tp", {"parallel.tp=2"}, 830, 1, {}, 2},
      {"tp_lora", {"parallel.tp=2", "adapter.name=lora"}, 960, 1, {}, 2},
      {"cp_ring", {"parallel.cp=2", "parallel.cp_method=RING"}, 990, 1, {}, 2},
      {"cp_gather", {"parallel.cp=2", "parallel.cp_method=GATHER"}, 910, 1, {}, 2},
      // How many tokens come from each rank is waited for.
      {"ep", {"parallel.ep=2"}, 570, 2, "qwen3_moe", 2},
  };
  return all;
}

INSTANTIATE_TEST_SUITE_P(Modes, Step, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace finetune::tests::simulated_budget
