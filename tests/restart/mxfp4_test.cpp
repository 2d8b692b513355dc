// SPDX-License-Identifier: Apache-2.0
// Runs that begin with experts in MXFP4: unpacked where all is trained, kept as they are under an
// adapter.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "restart/adapter_job.hpp"

namespace finetune::tests::mxfp4_test {
namespace {

using namespace adapter_job;

constexpr int exit_resubmit = 75;

Job packed_job(const std::string& name, const Words& more) {
  return family_job("gpt_oss_mxfp4", "mxfp4." + name, settings(more));
}

Outcome planned(const Job& job, const Words& more = {}) {
  Words words = {"plan", "job.toml"};
  words.insert(words.end(), more.begin(), more.end());
  return run_finetune(1, words, job.folder());
}

TEST(Mxfp4, IsUnpackedToTrainAllOfIt) {
  const Job job = packed_job("whole", {"adapter.name=none", "train.max_steps=0"});
  const Outcome plan = planned(job, {"train.max_steps=1"});
  EXPECT_EQ(count(plan.out, "hold in MXFP4 are unpacked as they are read"), 1) << plan.text();
  const Outcome run = job.run(2);
  must(run);
  EXPECT_EQ(count(run.out, "unpacked 4 tensors of MXFP4, which are trained"), 1) << run.text();
  must(command(job, {"export", "output", "out", "--dtype", "float32"}));
  EXPECT_EQ(largest_difference(logits_of(job.folder() / "out"), logits_of(job.model())), 0);
  EXPECT_FALSE(
      core::read_json(job.folder() / "out/config.json", 1 << 20).contains("quantization_config"));
}

TEST(Mxfp4, StaysPackedUnderAnAdapterThatIsMergedIntoWhatItStandsFor) {
  const Job job = packed_job("lora", {});
  const Outcome plan = planned(job, {"adapter.name=lora"});
  EXPECT_EQ(count(plan.out, "frozen, MXFP4"), 1) << plan.text();
  must(job.run(2));
  must(command(job, {"export", "output", "adapter"}));
  must(command(job, {"export", "output", "merged", "--merge", "--dtype", "float32"}));
  const at::Tensor adapted = logits_of(job.model(), job.folder() / "adapter");
  EXPECT_GT(largest_difference(logits_of(job.model()), adapted), 1e-3);
  EXPECT_LT(largest_difference(logits_of(job.folder() / "merged"), adapted), 3e-5);
  EXPECT_EQ(count(read_file(job.folder() / "adapter/finetune_base.json"), "mxfp4 of the files"), 1);
}

/// Other ranks keep other experts, and go on with the same bits.
TEST(Mxfp4, GoesOnWithTheSameBitsOnOtherRanks) {
  const Words same = {"train.determinism=topology", "train.max_steps=4", "checkpoint.save_steps=2"};
  const Job straight = packed_job("straight", same), job = packed_job("stopped", same);
  // As many threads for each rank.
  ::setenv("OMP_NUM_THREADS", "1", 1);
  must(straight.run(1));
  ASSERT_EQ(job.run(2, {"train.stop_after_steps=2"}).exit_code, exit_resubmit);
  must(job.run(3));
  ::unsetenv("OMP_NUM_THREADS");
  EXPECT_TRUE(job.exported() == straight.exported());
}

TEST(Mxfp4, IsNotPackedOnceMore) {
  const Job job = packed_job("quantize", {});
  const Outcome outcome = command(job, {"quantize", "model", "out"});
  EXPECT_EQ(outcome.exit_code, 65) << outcome.text();
}

}  // namespace
}  // namespace finetune::tests::mxfp4_test
