// SPDX-License-Identifier: Apache-2.0
// Runs that begin with weights in few bits, as AutoAWQ, GPTQModel, compressed-tensors and
// bitsandbytes publish them: unpacked where all is trained, kept as they are under an adapter.
#include <gtest/gtest.h>

#include <cstdlib>

#include "restart/adapter_job.hpp"
#include "unit/base/packed_models.hpp"

namespace finetune::tests::packed_test {
namespace {

using namespace adapter_job;

constexpr int exit_resubmit = 75;

Job packed_job(const std::string& format, const std::string& name, const Words& more) {
  Job job("packed." + format + "." + name, settings(more));
  fs::remove(job.model() / "model.safetensors");
  for (const char* file : {"model.safetensors", "config.json"})
    fs::copy_file(packed_folder(format) / file, job.model() / file,
                  fs::copy_options::overwrite_existing);
  return job;
}

Outcome planned(const Job& job, const Words& more = {}) {
  Words words = {"plan", "job.toml"};
  words.insert(words.end(), more.begin(), more.end());
  return run_finetune(1, words, job.folder());
}

/// How plans and logs call it.
std::string title(const std::string& format) {
  if (format == "awq") return "AWQ 4-bit";
  if (format == "gptq_8") return "GPTQ 8-bit";
  if (format == "nvfp4") return "NVFP4";
  return format.starts_with("words_4") ? "4-bit integers" : "8-bit integers";
}

class PackedRun : public testing::TestWithParam<std::string> {};

TEST_P(PackedRun, IsUnpackedToTrainAllOfIt) {
  const Job job = packed_job(GetParam(), "whole", {"adapter.name=none", "train.max_steps=0"});
  const Outcome plan = planned(job, {"train.max_steps=1"});
  EXPECT_EQ(count(plan.out, "hold in " + title(GetParam()) + " are unpacked as they are read"), 1)
      << plan.text();
  const Outcome run = job.run(2);
  must(run);
  EXPECT_EQ(count(run.out, "unpacked 7 tensors of " + title(GetParam()) + ", which are trained"), 1)
      << run.text();
  must(command(job, {"export", "output", "out", "--dtype", "float32"}));
  const weights::ModelFiles numbers = packed_numbers(GetParam());
  for (const std::string& name : numbers.names())
    EXPECT_EQ(tensor_in(job.folder() / "out", name), read_golden<float>(numbers, name)) << name;
  EXPECT_FALSE(
      core::read_json(job.folder() / "out/config.json", 1 << 20).contains("quantization_config"));
}

TEST_P(PackedRun, StaysPackedUnderAnAdapterThatIsMergedIntoWhatItStandsFor) {
  const Job job = packed_job(GetParam(), "lora", {});
  for (const char* adapter : {"adapter.name=lora", "adapter.name=qlora"}) {
    const Outcome plan = planned(job, {adapter});
    EXPECT_EQ(count(plan.out, "frozen, " + title(GetParam())), 1) << plan.text();
  }
  must(job.run(2));
  must(command(job, {"export", "output", "adapter"}));
  must(command(job, {"export", "output", "merged", "--merge", "--dtype", "float32"}));
  const at::Tensor adapted = logits_of(job.model(), job.folder() / "adapter");
  EXPECT_GT(largest_difference(logits_of(job.model()), adapted), 1e-3);
  EXPECT_LT(largest_difference(logits_of(job.folder() / "merged"), adapted), 3e-5);
}

TEST_P(PackedRun, GoesOnWithTheSameBitsOnOtherRanks) {
  const Words same = {"train.determinism=topology", "train.max_steps=4", "checkpoint.save_steps=2"};
  const Job straight = packed_job(GetParam(), "straight", same),
            job = packed_job(GetParam(), "stopped", same);
  // As many threads for each rank.
  ::setenv("OMP_NUM_THREADS", "1", 1);
  must(straight.run(1));
  ASSERT_EQ(job.run(2, {"train.stop_after_steps=2"}).exit_code, exit_resubmit);
  must(job.run(3));
  ::unsetenv("OMP_NUM_THREADS");
  EXPECT_TRUE(job.exported() == straight.exported());
}

/// Those that differ in what is read and kept; the others are read as one of these.
INSTANTIATE_TEST_SUITE_P(Formats, PackedRun,
                         testing::Values("awq", "gptq_8", "words_4_zeros", "bitsandbytes_8",
                                         "nvfp4"),
                         [](const auto& of) { return std::string(of.param); });

TEST(PackedModel, IsNotPackedOnceMore) {
  const Job job = packed_job("awq", "quantize", {});
  const Outcome outcome = command(job, {"quantize", "model", "out"});
  EXPECT_EQ(outcome.exit_code, 65) << outcome.text();
}

}  // namespace
}  // namespace finetune::tests::packed_test
