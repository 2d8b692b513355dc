// SPDX-License-Identifier: Apache-2.0
// The whole program on simulated GPUs: it trains as on the CPU, whatever the strategy, precision,
// adapter and optimizer, and never touches the device's memory from the host, which would end it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <regex>
#include <string>

#include "simulated/simulated_job.hpp"

namespace finetune::tests::simulated_training {
namespace {

struct Case {
  std::string name;
  int ranks = 1;
  Words settings;
  std::string precision = "32-true";
  std::string family = {};   ///< of tests/golden/models; empty: llama
  bool has_kernels = false;  ///< those of a Kokkos with CUDA in place of compositions
};

/// "4.78 MiB" after `words`, in MiB.
double mib_after(const std::string& text, const std::string& words) {
  const std::regex amount(words + " ([0-9.]+) (KiB|MiB|GiB)");
  std::smatch match;
  if (!std::regex_search(text, match, amount)) return -1;
  const double unit = match[2] == "KiB" ? 1.0 / 1024 : match[2] == "GiB" ? 1024 : 1;
  return std::stod(match[1]) * unit;
}

/// Relative: fp32 differs by the order of sums, narrow floats by where they are rounded.
double tolerance_of(const std::string& precision) {
  // What bf16 rounds otherwise falls on other numbers of 8 bits.
  if (precision == "fp8-mixed") return 5e-2;
  return precision == "32-true" ? 1e-4 : 2e-2;
}

Words settings_of(const Case& c, const std::string& device) {
  // The fourth step has the whole rate, and samples of two epochs.
  Words settings = with(short_run(c.precision, 4), c.settings);
  // The reference is one rank, which has no mesh.
  if (device == "cpu")
    std::erase_if(settings, [](const std::string& word) { return word.starts_with("parallel."); });
  return settings;
}

Job job_of(const Case& c, const std::string& device) {
  const std::string name = "simulated/" + c.name + "." + device;
  if (c.family.empty()) return Job(name, settings_of(c, device));
  return family_job(c.family, name, settings_of(c, device));
}

/// What one rank of the CPU measures: once for all that differ in what one rank does not have.
const std::vector<core::Json>& on_cpu(const Case& c) {
  static std::map<Words, std::vector<core::Json>> known;
  Words key = settings_of(c, "cpu");
  key.push_back(c.family);
  if (const auto found = known.find(key); found != known.end()) return found->second;
  const Job job = job_of(c, "cpu");
  const Outcome outcome = job.run(1);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  return known[key] = job.metrics();
}

class OnSimulatedGpus : public testing::TestWithParam<Case> {};

TEST_P(OnSimulatedGpus, TrainsAsOnTheCpu) {
  const Case& c = GetParam();
  const std::vector<core::Json>& expected = on_cpu(c);
  const Job job = job_of(c, "gpu");
  const Setting kernels("FINETUNE_SIMULATED_KERNELS", c.has_kernels ? "1" : "0");
  const Outcome outcome = run_on_simulated_gpus(job, c.ranks);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.text();
  EXPECT_GT(report_of(job, c.ranks - 1).num_launches, 0) << "nothing ran on the device";

  const double planned = mib_after(outcome.out, "of which tensors");
  const double used = mib_after(outcome.out, "used by tensors");
  ASSERT_GT(planned, 0) << outcome.out;
  // Blocks of 512 bytes are a part of so small a model.
  EXPECT_LT(used, 1.1 * planned + 0.06);
  EXPECT_GT(used, 0.7 * planned);

  const auto rows = job.metrics();
  ASSERT_EQ(rows.size(), expected.size());
  const double tolerance = tolerance_of(c.precision);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (const char* field : {"loss", "grad_norm", "validation_loss"}) {
      if (!expected[i].contains(field)) continue;
      const double value = rows[i][field].get<double>();
      const double wanted = expected[i][field].get<double>();
      EXPECT_NEAR(value, wanted, tolerance * std::abs(wanted)) << field << " in row " << i;
    }
    if (!expected[i].contains("norms")) continue;
    ASSERT_EQ(rows[i].at("norms").size(), expected[i]["norms"].size());
    for (const auto& [layer, norms] : expected[i]["norms"].items())
      for (const char* kind : {"weight", "gradient"}) {
        const double wanted = norms.at(kind);
        EXPECT_NEAR(rows[i]["norms"][layer][kind].get<double>(), wanted,
                    2 * tolerance * std::abs(wanted))
            << kind << " of " << layer << " in row " << i;
      }
  }
}

std::vector<Case> cases() {
  const auto sharded = [](const std::string& strategy) {
    return Words{"parallel.sharding=" + strategy};
  };
  const Words lora = {"adapter.name=lora", "adapter.lora_r=4", "optimizer.lr=2e-2"};
  const Words in_backward = {"optimizer.in_backward=true", "optimizer.max_grad_norm=0",
                             "train.micro_batch=5"};
  return {
      {"fp32", 1, {}, "32-true"},
      {"bf16_mixed", 1, {}, "bf16-mixed"},
      {"bf16_true", 1, {}, "bf16-true"},
      {"fp16", 1, {}, "16-mixed"},
      {"fp8", 2, {}, "fp8-mixed"},
      {"fp8_e4m3",
       1,
       {"precision.fp8_gradients=e4m3", "train.activation_checkpointing=selective"},
       "fp8-mixed"},
      {"fp8_weight_gradients", 2, {"precision.fp8_weight_gradients=fp8"}, "fp8-mixed"},
      {"fp8_experts", 1, {}, "fp8-mixed", "qwen3_moe"},
      {"fp8_experts_e4m3", 2, {"precision.fp8_gradients=e4m3"}, "fp8-mixed", "qwen3_moe"},
      {"fp8_experts_frozen", 1, lora, "fp8-mixed", "qwen3_moe"},
      {"fp8_experts_ep", 2, {"parallel.ep=2"}, "fp8-mixed", "qwen3_moe"},
      {"fp8_lora", 1, lora, "fp8-mixed"},
      {"fp8_tp", 2, {"parallel.tp=2"}, "fp8-mixed"},
      {"full_shard", 2, sharded("FULL_SHARD")},
      {"full_shard_bf16", 3, sharded("FULL_SHARD"), "bf16-mixed"},
      {"shard_grad_op", 2, sharded("SHARD_GRAD_OP")},
      {"no_shard", 2, sharded("NO_SHARD")},
      {"hybrid", 4, with(sharded("HYBRID_SHARD"), {"parallel.dp_shard=2"})},
      {"topology", 2, with(sharded("FULL_SHARD"), {"train.determinism=topology"})},
      {"topology_hybrid", 4,
       with(sharded("HYBRID_SHARD"), {"parallel.dp_shard=2", "train.determinism=topology"})},
      {"recompute", 1, {"train.activation_checkpointing=full"}},
      {"selective", 1, {"train.activation_checkpointing=selective"}, "bf16-mixed"},
      {"packing", 1, {"data.packing=true"}},
      {"packing_bf16", 2, {"data.packing=true"}, "bf16-mixed"},
      {"window", 1, {}, "bf16-mixed", "mistral"},
      {"chunks", 1, {}, "32-true", "llama4"},
      {"experts", 2, {}, "32-true", "qwen3_moe"},
      {"experts_grouped", 2, {}, "bf16-mixed", "qwen3_moe"},
      // Random bits for a piece of the weights would be more than all activations.
      {"experts_grouped_recompute",
       1,
       {"train.activation_checkpointing=full", "optimizer.rounding=nearest"},
       "bf16-true",
       "qwen3_moe"},
      {"experts_grouped_frozen", 1, lora, "bf16-mixed", "qwen3_moe"},
      {"experts_grouped_fused", 1, {}, "bf16-mixed", "llama4"},
      {"experts_grouped_ep", 2, {"parallel.ep=2"}, "bf16-mixed", "qwen3_moe"},
      {"experts_grouped_tp", 2, {"parallel.tp=2"}, "bf16-mixed", "qwen3_moe"},
      {"experts_grouped_fused_tp", 2, {"parallel.tp=2"}, "bf16-mixed", "llama4"},
      {"qwen", 1, {}, "bf16-mixed", "qwen3"},
      {"tied", 2, {}, "32-true", "llama_tied"},
      {"context_ring", 2, {"parallel.cp=2", "parallel.cp_method=RING"}, "bf16-mixed"},
      {"context_gather", 3, {"parallel.cp=3", "parallel.cp_method=GATHER"}, "bf16-mixed"},
      {"context_fp32", 2, {"parallel.cp=2", "parallel.cp_method=RING"}},
      {"context_packing", 4, {"parallel.cp=2", "data.packing=true"}, "bf16-mixed"},
      {"context_window", 2, {"parallel.cp=2"}, "bf16-mixed", "mistral"},
      {"context_chunks", 2, {"parallel.cp=2"}, "32-true", "llama4"},
      {"context_experts", 2, {"parallel.cp=2"}, "32-true", "qwen3_moe"},
      {"lora", 2, lora},
      {"lora_dropout", 1, with(lora, {"adapter.lora_dropout=0.1"})},
      {"dora", 1, with(lora, {"adapter.use_dora=true"})},
      {"ia3", 1, {"adapter.name=ia3", "optimizer.lr=2e-2"}},
      {"qlora", 2, {"adapter.name=qlora", "adapter.lora_r=4", "optimizer.lr=2e-2"}, "bf16-mixed"},
      {"tp", 2, {"parallel.tp=2"}},
      {"tp_lora", 2, with(lora, {"adapter.lora_dropout=0.1", "parallel.tp=2"})},
      {"tp_experts", 2, {"parallel.tp=2"}, "32-true", "qwen3_moe"},
      {"tp_shards", 4, {"parallel.tp=2", "train.activation_checkpointing=selective"}, "bf16-mixed"},
      {"adamw8bit", 2, {"optimizer.name=adamw8bit"}},
      {"lion", 1, {"optimizer.name=lion"}},
      {"adafactor", 2, {"optimizer.name=adafactor"}},
      {"adafactor_offload", 2, {"optimizer.name=adafactor", "optimizer.offload=true"}},
      {"in_backward", 2, in_backward},
      {"in_backward_adafactor", 2, with(in_backward, {"optimizer.name=adafactor"})},
      {"in_backward_hybrid", 4,
       with(in_backward, {"parallel.sharding=HYBRID_SHARD", "parallel.dp_shard=2"}), "bf16-mixed"},
      {"in_backward_kernels", 2, in_backward, "bf16-mixed", {}, true},
      {"offload", 2, {"optimizer.offload=true"}, "bf16-mixed"},
      {"norms", 2, with(sharded("FULL_SHARD"), {"metrics.norms_steps=1"})},
      {"norms_bf16_true", 1, {"metrics.norms_steps=2"}, "bf16-true"},
      {"norms_fp16", 1, {"metrics.norms_steps=1"}, "16-mixed"},
      {"norms_offload", 1, {"optimizer.offload=true", "metrics.norms_steps=1"}},
      {"kernels", 2, sharded("FULL_SHARD"), "bf16-mixed", {}, true},
      {"kernels_fp32", 1, {}, "32-true", "qwen3", true},
      {"kernels_rounding", 1, {}, "bf16-true", {}, true},
      {"kernels_lion", 1, {"optimizer.name=lion"}, "32-true", {}, true},
      {"kernels_dropout", 2, with(lora, {"adapter.lora_dropout=0.1"}), "32-true", {}, true},
      {"kernels_qlora",
       2,
       {"adapter.name=qlora", "adapter.lora_r=4", "optimizer.lr=2e-2"},
       "bf16-mixed",
       {},
       true},
      {"kernels_topology", 1, {"train.determinism=topology"}, "bf16-mixed", {}, true},
      {"kernels_topology_fp32", 2, {"train.determinism=topology"}, "32-true", {}, true},
      {"kernels_adamw8bit", 2, {"optimizer.name=adamw8bit"}, "32-true", {}, true},
      {"kernels_adamw8bit_rounding", 1, {"optimizer.name=adamw8bit"}, "bf16-true", {}, true},
      {"kernels_experts", 2, {}, "bf16-mixed", "qwen3_moe", true},
      {"kernels_tp", 2, {"parallel.tp=2"}, "bf16-mixed", {}, true},
      {"offload_topology", 1, {"optimizer.offload=true", "train.determinism=topology"}},
  };
}

INSTANTIATE_TEST_SUITE_P(Everything, OnSimulatedGpus, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

TEST(SimulatedGpus, AStoppedRunEndsWithTheBitsOfTheUninterruptedRun) {
  const Words settings = short_run("bf16-mixed", 12);
  const Job straight("simulated/straight", settings);
  const Job stopped("simulated/stopped", settings);
  const Outcome whole = run_on_simulated_gpus(straight, 2);
  ASSERT_EQ(whole.exit_code, 0) << whole.text();
  const Outcome first = run_on_simulated_gpus(stopped, 2, {"train.stop_after_steps=5"});
  ASSERT_EQ(first.exit_code, 75) << first.text();
  const Outcome second = run_on_simulated_gpus(stopped, 2);
  ASSERT_EQ(second.exit_code, 0) << second.text();
  expect_same_metrics(stopped, straight);
  EXPECT_TRUE(stopped.exported() == straight.exported());
}

TEST(SimulatedGpus, ACheckpointContinuesOnTheCpuAndBack) {
  const Job job("simulated/moved", short_run("32-true", 12));
  EXPECT_EQ(run_on_simulated_gpus(job, 2, {"train.stop_after_steps=4"}).exit_code, 75);
  EXPECT_EQ(job.run(1, {"train.stop_after_steps=4"}).exit_code, 75);
  const Outcome last = run_on_simulated_gpus(job, 3);
  EXPECT_EQ(last.exit_code, 0) << last.text();
  EXPECT_EQ(job.steps().size(), 12u);
}

/// With AdamW of our own: libtorch's on the processor that simulates computes the last few elements
/// of a shard in another way than the others, and shards end where ranks say.
TEST(SimulatedGpus, TheTopologyOfGpusDoesNotChangeTheWeights) {
  const Setting kernels("FINETUNE_SIMULATED_KERNELS", "1");
  const Words settings = with(short_run("bf16-mixed", 6), {"train.determinism=topology"});
  const Job alone("simulated/topology_alone", settings);
  const Job three("simulated/topology_three", settings);
  EXPECT_EQ(run_on_simulated_gpus(alone, 1).exit_code, 0);
  EXPECT_EQ(run_on_simulated_gpus(three, 3).exit_code, 0);
  expect_same_metrics(three, alone);
  EXPECT_TRUE(alone.exported() == three.exported());
}

/// Gathered units have memory of their own, so it shows in what is used, and in the plan.
TEST(SimulatedGpus, OneThatCommunicatesAloneTrainsTheSameBits) {
  for (const Words& more : {Words{}, Words{"train.determinism=topology"}}) {
    const std::string name = more.empty() ? "run" : "topology";
    // The head computes what is trained; a plan, which knows no data, takes that to be all.
    const Words settings = with(with(short_run("bf16-mixed", 4), more), {"data.train_on=all"});
    const Job alone("simulated/alone_" + name, settings);
    const Job communicating("simulated/communicating_" + name, settings);
    const Outcome expected = run_on_simulated_gpus(alone, 1);
    ASSERT_EQ(expected.exit_code, 0) << expected.text();
    const Setting communicates("FINETUNE_COMMUNICATE_ALONE", "1");
    const Outcome outcome = run_on_simulated_gpus(communicating, 1);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.text();
    expect_same_metrics(communicating, alone);
    EXPECT_TRUE(communicating.exported() == alone.exported());
    const double used = mib_after(outcome.out, "used by tensors");
    EXPECT_GT(used, mib_after(expected.out, "used by tensors"));
    EXPECT_NEAR(used, mib_after(outcome.out, "of which tensors"), 0.1 * used + 0.06);
  }
}

TEST(SimulatedGpus, NameAGradientThatFixedPointCannotHoldAsTheCpuDoes) {
  const Words settings =
      with(short_run("bf16-mixed", 3),
           {"train.determinism=topology", "optimizer.lr=1e12", "optimizer.warmup_steps=0"});
  const auto problem = [](const Outcome& outcome) {
    EXPECT_EQ(outcome.exit_code, 71) << outcome.text();
    const std::size_t start = outcome.err.find("the gradient of ");
    return outcome.err.substr(std::min(outcome.err.size(), start), 60);
  };
  const std::string on_cpu = problem(Job("simulated/beyond.cpu", settings).run(1));
  EXPECT_EQ(count(on_cpu, "the gradient of "), 1);
  for (const char* has_kernels : {"0", "1"}) {
    const Setting kernels("FINETUNE_SIMULATED_KERNELS", has_kernels);
    const Job job(std::string("simulated/beyond.gpu") + has_kernels, settings);
    EXPECT_EQ(problem(run_on_simulated_gpus(job, 1)), on_cpu) << has_kernels;
  }
}

TEST(SimulatedGpus, OlderOnesTrainInFp16AndRefuseBf16WithAReason) {
  const Setting volta("FINETUNE_SIMULATED_CAPABILITY", "70");
  const Job narrow("simulated/volta_bf16", short_run("bf16-mixed", 2));
  const Outcome refused = run_on_simulated_gpus(narrow, 2);
  EXPECT_EQ(refused.exit_code, 69) << refused.text();
  EXPECT_EQ(count(refused.err, "bf16 needs 8.0"), 1) << refused.text();
  const Job job("simulated/volta_fp16", short_run("16-mixed", 2));
  const Outcome outcome = run_on_simulated_gpus(job, 1);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  EXPECT_GT(report_of(job).launches["aten::_efficient_attention_forward"], 0);
}

TEST(SimulatedGpus, AreNotReplacedByTheCpuWithoutAWord) {
  const Setting none("FINETUNE_SIMULATED_GPUS", "0");
  const Job job("simulated/none", short_run("32-true", 2));
  const Outcome refused = run_on_simulated_gpus(job, 1, {"train.device=gpu"});
  EXPECT_EQ(refused.exit_code, 69) << refused.text();
  const Outcome outcome = run_on_simulated_gpus(job, 1, {"train.device=cpu"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  EXPECT_EQ(count(outcome.out, "computes on CPUs"), 1) << outcome.text();
}

TEST(SimulatedGpus, TwoRanksWithOneGpuAreRefused) {
  const Setting one("FINETUNE_SIMULATED_GPUS", "1");
  const Job job("simulated/shared", short_run("32-true", 2));
  const Outcome refused = run_on_simulated_gpus(job, 2);
  EXPECT_EQ(refused.exit_code, 69) << refused.text();
  EXPECT_EQ(count(refused.err, "no GPU is left for it"), 1) << refused.text();
}

TEST(SimulatedGpus, ThatRunOutOfMemoryAreToldWithPlanAndRemedy) {
  // Of whose plan activations are a part worth saving.
  const Words settings =
      with(short_run("32-true", 2), {"train.micro_batch=16", "train.global_batch=32"});
  const Job roomy("simulated/roomy", settings);
  EXPECT_EQ(run_on_simulated_gpus(roomy, 1).exit_code, 0);
  // Enough for the weights and too little for a step, as when others take what the plan counted on.
  const std::int64_t kib = report_of(roomy).peak_bytes * 3 / 4 / 1024;
  const Setting left("FINETUNE_SIMULATED_LEFT_KIB", std::to_string(kib).c_str());
  for (const int ranks : {1, 2}) {
    const Job job("simulated/memory." + std::to_string(ranks), settings);
    const Outcome outcome = run_on_simulated_gpus(job, ranks, {"parallel.sharding=NO_SHARD"});
    EXPECT_EQ(outcome.exit_code, 69) << outcome.text();
    for (const char* part :
         {"memory of GPU ", "(simulated-", "Tried to allocate", "; planned were ", ": weights ",
          ", activations ", "; tensors had up to ", "held up to ", "By the plan, ", " saves "})
      EXPECT_GE(count(outcome.err, part), 1) << part << " in:\n" << outcome.text();
    EXPECT_EQ(count(outcome.err, "unallocated memory is large"), 0) << outcome.text();
  }
}

TEST(SimulatedGpus, AreNotBlamedForMemoryThatTheHostLacks) {
  const Setting left("FINETUNE_SIMULATED_PINNED_KIB", "1");
  const Job job("simulated/pinned", short_run("32-true", 2));
  const Outcome outcome = run_on_simulated_gpus(job, 1, {"optimizer.offload=true"});
  EXPECT_EQ(outcome.exit_code, 69) << outcome.text();
  EXPECT_EQ(count(outcome.err, "error: host memory of "), 1) << outcome.text();
  EXPECT_EQ(count(outcome.err, "memory of GPU"), 0) << outcome.text();
}

}  // namespace
}  // namespace finetune::tests::simulated_training
