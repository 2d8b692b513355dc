// SPDX-License-Identifier: Apache-2.0
// Runs of adapters that move between ranks end in the bits of one that did not; and an adapter does
// not go on beside other weights.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>

#include "modules/adapters/gptq_model.hpp"
#include "restart/job.hpp"
#include "support/folders.hpp"

namespace finetune::tests::adapters_test {
namespace {

namespace fs = std::filesystem;

constexpr int exit_resubmit = 75;

/// Settings of what is trained, beside which weights.
struct Kind {
  const char* name;
  std::vector<std::string> settings;
  std::string packed = "";  ///< "gptq", or a format of `finetune quantize`
};

const Kind kinds[] = {
    {"Ia3", {"adapter.name=ia3", "precision.mode=bf16-mixed", "optimizer.lr=0.1"}},
    {"Lora",
     {"adapter.name=lora", "adapter.lora_dropout=0.1", "data.packing=true",
      "precision.mode=bf16-mixed"}},
    {"LoraWithWholeModules",
     {"adapter.name=lora", "adapter.target_modules=[q_proj,v_proj]",
      "adapter.modules_to_save=[lm_head]", "adapter.use_rslora=true", "precision.mode=32-true",
      "train.activation_checkpointing=full"}},
    {"Qlora",
     {"adapter.name=qlora", "adapter.use_dora=true", "adapter.lora_dropout=0.1",
      "precision.mode=bf16-mixed", "train.activation_checkpointing=selective"}},
    {"DoraInFp8",
     {"adapter.name=lora", "adapter.use_dora=true", "adapter.lora_dropout=0.1",
      "precision.mode=fp8-mixed"}},
    {"LoraOnGptq", {"adapter.name=lora", "precision.mode=bf16-mixed"}, "gptq"},
    {"LoraOnFp8", {"adapter.name=lora", "precision.mode=bf16-mixed"}, "fp8"},
    {"LoraInFp8OnFp8OfBlocks", {"adapter.name=lora", "precision.mode=fp8-mixed"}, "fp8-block"}};

std::vector<std::string> settings_of(const Kind& kind) {
  std::vector<std::string> settings = {"train.max_steps=12",  "train.global_batch=6",
                                       "train.micro_batch=2", "train.determinism=topology",
                                       "optimizer.lr=1e-3",   "checkpoint.save_steps=5",
                                       "metrics.log_steps=1"};
  settings.insert(settings.end(), kind.settings.begin(), kind.settings.end());
  return settings;
}

void pack(const Job& job, const std::string& format) {
  const fs::path packed = job.folder() / "packed";
  if (format == "gptq") {
    make_gptq_models(job.model(), packed, job.folder() / "dense", {.group_size = 32});
  } else {
    const Outcome outcome =
        run_finetune(1, {"quantize", "model", "packed", "--format", format}, job.folder());
    ASSERT_EQ(outcome.exit_code, 0) << outcome.text();
  }
  for (const char* file : {"config.json", "model.safetensors"})
    fs::copy_file(packed / file, job.model() / file, fs::copy_options::overwrite_existing);
}

class AdapterRun : public testing::TestWithParam<Kind> {
 protected:
  // A micro-batch has the same bits only from as many threads.
  void SetUp() override { ::setenv("OMP_NUM_THREADS", "1", 1); }
  void TearDown() override { ::unsetenv("OMP_NUM_THREADS"); }
};

TEST_P(AdapterRun, MovedBetweenRanksAndStrategiesEndsInTheSameBits) {
  const Kind& kind = GetParam();
  const Job straight(std::string("adapter.straight.") + kind.name, settings_of(kind));
  const Job moved(std::string("adapter.moved.") + kind.name, settings_of(kind));
  if (!kind.packed.empty()) {
    pack(straight, kind.packed);
    pack(moved, kind.packed);
  }
  const Outcome whole = straight.run(1);
  EXPECT_EQ(whole.exit_code, 0) << whole.text();
  const std::vector<std::pair<int, std::string>> starts = {{2, "parallel.sharding=FULL_SHARD"},
                                                           {3, "parallel.sharding=SHARD_GRAD_OP"},
                                                           {1, "parallel.sharding=NO_SHARD"}};
  for (const auto& [ranks, sharding] : starts) {
    const Outcome outcome = moved.run(ranks, {sharding, "train.stop_after_steps=4"});
    EXPECT_EQ(outcome.exit_code, ranks == 1 ? 0 : exit_resubmit) << outcome.text();
  }
  expect_same_metrics(moved, straight);
  EXPECT_TRUE(moved.checkpoint_bytes(12) == straight.checkpoint_bytes(12));
  EXPECT_LT(straight.steps().back().at("loss").get<double>(),
            straight.steps().front().at("loss").get<double>());
  // What is frozen is not in the checkpoint.
  EXPECT_EQ(count(straight.checkpoint_bytes(12), "input_layernorm"), 0);
}

INSTANTIATE_TEST_SUITE_P(Kinds, AdapterRun, testing::ValuesIn(kinds),
                         [](const auto& info) { return info.param.name; });

TEST(Adapter, DoesNotGoOnBesideOtherWeights) {
  const Job job("adapter.other_base",
                {"adapter.name=lora", "train.max_steps=4", "precision.mode=32-true"});
  EXPECT_EQ(job.run(2, {"train.stop_after_steps=2"}).exit_code, exit_resubmit);
  const Words merge_it = {"export", "output", "merged", "--merge"};
  const Outcome merged = run_finetune(1, merge_it, job.folder());
  EXPECT_EQ(merged.exit_code, 0) << merged.text();
  fs::remove_all(job.folder() / "merged");
  // One bit of one weight.
  std::fstream file(job.model() / "model.safetensors",
                    std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-5, std::ios::end);
  const char byte = static_cast<char>(file.get() ^ 1);
  file.seekp(-5, std::ios::end);
  file.put(byte);
  file.close();
  const Outcome outcome = job.run(2);
  EXPECT_EQ(outcome.exit_code, 65) << outcome.text();
  EXPECT_EQ(count(outcome.err, "is not the model that output/step-0000000002 was trained on"), 1)
      << outcome.text();
  const Outcome merge = run_finetune(1, merge_it, job.folder());
  EXPECT_EQ(merge.exit_code, 65) << merge.text();
  EXPECT_EQ(count(merge.err, "is not the model that output/step-0000000002 was trained on"), 1)
      << merge.text();
}

}  // namespace
}  // namespace finetune::tests::adapters_test
