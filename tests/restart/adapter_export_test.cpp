// SPDX-License-Identifier: Apache-2.0
// Adapters out: PEFT folders, merged models, quantised bases.
#include <gtest/gtest.h>

#include "restart/adapter_job.hpp"

namespace finetune::tests::adapter_export_test {
namespace {

using namespace adapter_job;

struct Kind {
  std::string name;
  Words more;
};

class AdapterExport : public testing::TestWithParam<Kind> {};

TEST_P(AdapterExport, PeftAndWeAgreeOnAdapterAndMergedModel) {
  const Job job("adapter_export." + GetParam().name, settings(GetParam().more));
  must(job.run(2));
  must(command(job, {"export", "output", "adapter"}));
  const Outcome merged = command(job, {"export", "output", "merged", "--merge"});
  must(merged);
  EXPECT_EQ(count(merged.out, "merged the adapter into"), 1) << merged.out;
  const at::Tensor base = logits_of(job.model());
  const at::Tensor adapted = logits_of(job.model(), job.folder() / "adapter");
  EXPECT_GT(largest_difference(base, adapted), 1e-2);
  EXPECT_LT(largest_difference(logits_of(job.folder() / "merged"), adapted), 3e-5);
  const std::string card = read_file(job.folder() / "adapter/README.md");
  EXPECT_EQ(count(card, "library_name: peft\n"), 1) << card;
  if (!has_peft()) GTEST_SKIP() << "no Python with torch, transformers and peft here";
  write_logits(adapted, job);
  const Outcome loaded = python(job, {"load", "model", "adapter", "logits.f32"});
  EXPECT_EQ(loaded.exit_code, 0) << loaded.text();
  const Outcome compared = python(job, {"merge", "model", "adapter", "merged"});
  EXPECT_EQ(compared.exit_code, 0) << compared.text();
}

INSTANTIATE_TEST_SUITE_P(Kinds, AdapterExport,
                         testing::Values(Kind{"plain", {}}, Kind{"rich", rich},
                                         Kind{"patterned", patterned},
                                         Kind{"vocabulary", vocabulary},
                                         Kind{"pissa", {"adapter.init=pissa_niter_8"}},
                                         Kind{"olora", olora}),
                         [](const auto& info) { return info.param.name; });

/// What the matrices began with is in the checkpoint: nothing is factorised again.
TEST(AdapterExportOfStarts, ARestartOnOtherRanksIsTheSameRun) {
  // A micro-batch has the same bits only from as many threads, which by default are fewer on more
  // ranks. Starts have them from any (modules/adapters, Starts).
  ::setenv("OMP_NUM_THREADS", "1", 1);
  const Words words = settings({"adapter.init=pissa", "train.determinism=topology"});
  const Job straight("adapter_export.start.straight", words);
  must(straight.run(1));
  const Job job("adapter_export.start.moved", words);
  EXPECT_EQ(job.run(2, {"train.stop_after_steps=1"}).exit_code, 75);
  must(job.run(3));
  ::unsetenv("OMP_NUM_THREADS");
  expect_same_metrics(job, straight);
}

/// Tensors that are not adapted go through the merge as the family's files have them: experts one
/// by one or together, biases, norms of queries and keys, a head that is the embeddings.
class AdapterExportOfFamily : public testing::TestWithParam<const char*> {};

TEST_P(AdapterExportOfFamily, MergedModelGivesTheLogitsOfTheAdapter) {
  const std::string family = GetParam();
  for (const std::string kind : {"lora", "qlora"}) {
    const Job job = family_job(family, "adapter_export." + family + "." + kind,
                               settings({"adapter.name=" + kind}));
    must(job.run(2));
    must(command(job, {"export", "output", "adapter"}));
    must(command(job, {"export", "output", "merged", "--merge"}));
    fs::path beside = job.model();
    if (kind == "qlora") {
      must(command(job, {"quantize", "model", "nf4"}));
      beside = job.folder() / "nf4";
    }
    const at::Tensor adapted = logits_of(beside, job.folder() / "adapter");
    EXPECT_GT(largest_difference(logits_of(beside), adapted), 1e-2) << kind;
    EXPECT_LT(largest_difference(logits_of(job.folder() / "merged"), adapted), 3e-5) << kind;
    for (const std::string& name : weights::ModelFiles::open(job.model()).names())
      EXPECT_NO_THROW(tensor_in(job.folder() / "merged", name)) << kind;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, AdapterExportOfFamily,
                         testing::Values("deepseek_v3", "llama_tied", "llama4", "mistral", "qwen2",
                                         "qwen3", "qwen3_moe"),
                         [](const auto& info) { return std::string(info.param); });

/// A row of zeros has no direction to keep the norm of.
TEST(AdapterExportOfDora, ARowOfZerosIsTrainedAndMerged) {
  const Job job("adapter_export.zero_row", settings({"adapter.use_dora=true"}));
  change_first_row(job.model(), changed_matrix, [](char) { return '\0'; });
  must(job.run(2));
  for (const core::Json& row : job.steps())
    EXPECT_TRUE(row.at("loss").is_number()) << row;
  must(command(job, {"export", "output", "adapter"}));
  must(command(job, {"export", "output", "merged", "--merge"}));
  const at::Tensor adapted = logits_of(job.model(), job.folder() / "adapter");
  EXPECT_TRUE(at::isfinite(adapted).all().item<bool>());
  EXPECT_LT(largest_difference(logits_of(job.folder() / "merged"), adapted), 3e-5);
}

TEST(AdapterExportOfQlora, MergesIntoWhatItWasTrainedBesideUnlessTold) {
  const Job job("adapter_export.qlora", settings({"adapter.name=qlora"}));
  must(job.run(2));
  const Outcome trained = command(job, {"export", "output", "trained", "--merge"});
  must(trained);
  EXPECT_EQ(count(trained.out, "merged into the quantised ones"), 1) << trained.out;
  const Outcome original =
      command(job, {"export", "output", "original", "--merge", "--merge-into", "original"});
  must(original);
  EXPECT_EQ(count(original.out, "on which it was not trained"), 1) << original.out;
  must(command(job, {"export", "output", "adapter"}));
  must(command(job, {"quantize", "model", "nf4"}));
  const at::Tensor adapted = logits_of(job.folder() / "nf4", job.folder() / "adapter");
  EXPECT_LT(largest_difference(logits_of(job.folder() / "trained"), adapted), 3e-5);
  EXPECT_LT(largest_difference(logits_of(job.folder() / "original"),
                               logits_of(job.model(), job.folder() / "adapter")),
            3e-5);
  EXPECT_GT(largest_difference(logits_of(job.folder() / "original"), adapted), 1e-2);
}

TEST(AdapterExportOfFp8, MergesIntoWhatItWasTrainedBesideUnlessTold) {
  const Job job("adapter_export.fp8", settings({"precision.mode=fp8-mixed"}));
  must(job.run(2));
  must(command(job, {"verify", "output"}));
  const Outcome trained = command(job, {"export", "output", "trained", "--merge"});
  must(trained);
  EXPECT_EQ(count(trained.out, "merged into the quantised ones"), 1) << trained.out;
  const Outcome original =
      command(job, {"export", "output", "original", "--merge", "--merge-into", "original"});
  must(original);
  EXPECT_EQ(count(original.out, "on which it was not trained"), 1) << original.out;
  must(command(job, {"export", "output", "adapter"}));
  EXPECT_EQ(count(read_file(job.folder() / "adapter/finetune_base.json"), "fp8, rows"), 1);
  // The adapter goes on the files' weights; 8 bits are far nearer to them than 4.
  const at::Tensor adapted = logits_of(job.model(), job.folder() / "adapter");
  EXPECT_LT(largest_difference(logits_of(job.folder() / "original"), adapted), 3e-5);
  const double moved = largest_difference(logits_of(job.folder() / "trained"), adapted);
  EXPECT_GT(moved, 1e-4);
}

TEST(AdapterExportOfFp8, WhereTheBaseIsKeptOtherwiseARestartSaysSo) {
  const Job job("adapter_export.fp8_base", settings({"precision.mode=fp8-mixed"}));
  EXPECT_EQ(job.run(2, {"train.stop_after_steps=1"}).exit_code, 75);
  const Outcome same = job.run(3, {"train.stop_after_steps=1"});
  EXPECT_EQ(same.exit_code, 75) << same.text();
  EXPECT_EQ(count(same.err, "cannot be checked"), 0) << same.err;
  const Outcome other = job.run(2, {"precision.mode=bf16-mixed"});
  EXPECT_EQ(other.exit_code, 0) << other.text();
  EXPECT_EQ(count(other.err,
                  "was trained on weights in BF16 (fp8, rows), this start has them in "
                  "BF16: whether they are the same model cannot be checked"),
            1)
      << other.err;
}

class Quantize : public testing::TestWithParam<bool> {};

TEST_P(Quantize, ARunFromFourBitFilesIsTheSameRun) {
  const bool nests = GetParam();
  const std::string name = nests ? "double" : "single";
  const Words more = {"adapter.name=qlora",
                      std::string("adapter.double_quant=") + (nests ? "true" : "false")};
  const Job straight("quantize.straight." + name, settings(more));
  must(straight.run(2));
  const Job job("quantize.files." + name, settings(more));
  Words words = {"quantize", "model", "nf4", "--max-shard-size", "100KB"};
  if (!nests) words.push_back("--single");
  must(command(job, words));
  must(job.run(2, {"model.path=nf4"}));
  expect_same_metrics(job, straight);
  EXPECT_EQ(base_hash(job), base_hash(straight));
  EXPECT_FALSE(base_hash(job).empty());
  // The rest is as it was.
  EXPECT_EQ(tensor_in(job.folder() / "nf4", "lm_head.weight"),
            tensor_in(job.model(), "lm_head.weight"));
  EXPECT_EQ(read_file(job.folder() / "nf4/tokenizer.json"),
            read_file(job.model() / "tokenizer.json"));
  EXPECT_EQ(command(job, {"quantize", "nf4", "twice"}).exit_code, 65);
  if (!has_bitsandbytes()) GTEST_SKIP() << "no Python with transformers and bitsandbytes here";
  write_logits(logits_of(job.folder() / "nf4"), job);
  const Outcome loaded = python(job, {"nf4", "model", "nf4", "logits.f32"});
  EXPECT_EQ(loaded.exit_code, 0) << loaded.text();
}

INSTANTIATE_TEST_SUITE_P(Maxima, Quantize, testing::Bool(),
                         [](const auto& info) { return info.param ? "Nested" : "Single"; });

/// What transformers computes a state space with may read this matrix past its module.
TEST(AdapterExportOfStateSpaces, WhatPeftRefusesIsToldAtTheStartAndExportedMerged) {
  const Job job = family_job("nemotron_h", "adapter_export.out_of_state",
                             settings({"adapter.target_modules=[\"out_proj\"]"}));
  const Outcome run = job.run(1);
  must(run);
  EXPECT_EQ(count(run.err, "the run can be exported with --merge alone"), 1) << run.err;
  const Outcome refused = command(job, {"export", "output", "adapter"});
  EXPECT_EQ(refused.exit_code, 65) << refused.text();
  EXPECT_EQ(count(refused.err, "PEFT does not load low-rank parts of what comes out of a state"), 1)
      << refused.err;
  EXPECT_EQ(count(refused.err, "--merge"), 1) << refused.err;
  must(command(job, {"export", "output", "merged", "--merge"}));
}

TEST(AdapterExportOfWholeRuns, MergeIsRefused) {
  const Job job("adapter_export.whole", {"train.max_steps=0"});
  must(job.run(1));
  const Outcome outcome = command(job, {"export", "output", "out", "--merge"});
  EXPECT_EQ(outcome.exit_code, 64) << outcome.text();
  EXPECT_EQ(count(outcome.err, "has no adapter"), 1) << outcome.err;
}

}  // namespace
}  // namespace finetune::tests::adapter_export_test
