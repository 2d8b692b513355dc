// SPDX-License-Identifier: Apache-2.0
// Runs that begin from an adapter: a PEFT folder, an export of our own, of another model.
#include <gtest/gtest.h>

#include "restart/adapter_job.hpp"

namespace finetune::tests::adapter_path_test {
namespace {

using namespace adapter_job;

TEST(AdapterPath, WhatPeftBeganIsGoneOnFromAndGivesItsLogits) {
  for (const std::string kind : {"plain", "pattern", "layers", "exclude", "rich"}) {
    const Job job("adapter_path." + kind, settings({"adapter.path=adapter", "train.max_steps=0"}));
    if (!has_peft()) GTEST_SKIP() << "no Python with torch, transformers and peft here";
    must(python(job, {"make", "model", "adapter", kind}));
    const at::Tensor logits = logits_of(job.model(), job.folder() / "adapter");
    write_logits(logits, job);
    const Outcome loaded = python(job, {"load", "model", "adapter", "logits.f32"});
    EXPECT_EQ(loaded.exit_code, 0) << loaded.text();
    // Through a run that takes no step, and out again.
    must(job.run(2));
    must(command(job, {"export", "output", "again"}));
    EXPECT_EQ(largest_difference(logits_of(job.model(), job.folder() / "again"), logits), 0);
  }
}

TEST(AdapterPath, GoesOnFromAnExportWithTheSameWeights) {
  const Job job("adapter_path.own", settings({}));
  make_adapter(job, rich);
  const Outcome outcome = job.run(3, {"adapter.path=adapter", "train.max_steps=0"});
  must(outcome);
  EXPECT_EQ(count(outcome.out, "continues from the adapter adapter"), 1) << outcome.out;
  must(command(job, {"export", "output", "again"}));
  EXPECT_EQ(read_file(job.folder() / "adapter/adapter_model.safetensors"),
            read_file(job.folder() / "again/adapter_model.safetensors"));
}

TEST(AdapterPath, GoesOnWithTheRanksAndAlphasOfItsPatterns) {
  const Job job("adapter_path.patterned", settings({}));
  make_adapter(job, patterned);
  const fs::path file = job.folder() / "adapter";
  const core::Json config = core::read_json(file / "adapter_config.json", 1 << 20);
  EXPECT_EQ(config.at("rank_pattern"),
            core::Json::parse(R"({"k_proj": 2, "layers.0.*.q_proj": 6})"));
  EXPECT_EQ(config.at("alpha_pattern"), core::Json::parse(R"({"(v|gate)_proj": 40.0})"));
  const auto adapter = weights::ModelFiles::open({}, file, "adapter_model.safetensors");
  const auto rank = [&](const std::string& module) {
    return adapter.entry("base_model.model.model.layers." + module + ".lora_A.weight").shape[0];
  };
  EXPECT_EQ(rank("0.self_attn.q_proj"), 6);
  EXPECT_EQ(rank("1.self_attn.q_proj"), 4);
  EXPECT_EQ(rank("1.self_attn.k_proj"), 2);
  must(job.run(2, {"adapter.path=adapter", "train.max_steps=0"}));
  must(command(job, {"export", "output", "again"}));
  EXPECT_EQ(read_file(file / "adapter_model.safetensors"),
            read_file(job.folder() / "again/adapter_model.safetensors"));
  EXPECT_EQ(largest_difference(logits_of(job.model(), file),
                               logits_of(job.model(), job.folder() / "again")),
            0);
}

TEST(AdapterPath, TargetsByExpressionExclusionAndLayerAreWrittenAsNames) {
  const Job job("adapter_path.targets", settings({}));
  make_adapter(job, {"adapter.target_modules=\".*\\\\.(self_attn|mlp)\\\\.(q|k|up)_proj\"",
                     "adapter.exclude_modules=[\".*\\\\.0\\\\.mlp\\\\..*\", \"k_proj\"]",
                     "adapter.loraplus_lr_ratio=4"});
  const core::Json config = core::read_json(job.folder() / "adapter/adapter_config.json", 1 << 20);
  EXPECT_EQ(config.at("target_modules"),
            core::Json::parse(R"(["model.layers.1.mlp.up_proj", "q_proj"])"));
  // The ratio is of training, and may be another one.
  must(job.run(2, {"adapter.path=adapter", "train.max_steps=0", "adapter.loraplus_lr_ratio=16"}));
  must(command(job, {"export", "output", "again"}));
  EXPECT_EQ(read_file(job.folder() / "adapter/adapter_model.safetensors"),
            read_file(job.folder() / "again/adapter_model.safetensors"));
  write_logits(logits_of(job.model(), job.folder() / "again"), job);
  if (!has_peft()) return;
  const Outcome loaded = python(job, {"load", "model", "again", "logits.f32"});
  EXPECT_EQ(loaded.exit_code, 0) << loaded.text();
}

TEST(AdapterPath, AnAdapterOfAnotherModelIsRefused) {
  const Job job("adapter_path.other", settings({}));
  make_adapter(job, {"precision.mode=bf16-mixed"});  // comparable with what computes in fp32
  const fs::path record = job.folder() / "adapter/finetune_base.json";
  EXPECT_EQ(core::read_json(record, 1 << 20).at("packing"), "none");
  const auto generate = [&] {
    return command(job,
                   {"generate", "model", "Count.", "--adapter", "adapter", "--max-tokens", "1"});
  };
  must(generate());
  const Words from = {"adapter.path=adapter", "train.max_steps=0"};
  change_first_row(job.model(), changed_matrix, [](char byte) { return byte ^ 0x01; });

  const Outcome run = job.run(2, from);
  EXPECT_EQ(run.exit_code, 65) << run.text();
  EXPECT_EQ(
      count(run.err, "error: adapter: is an adapter of another model than the one in model ("), 1)
      << run.text();
  EXPECT_EQ(count(run.err, "error: "), 1) << run.text();
  const Outcome generated = generate();
  EXPECT_EQ(generated.exit_code, 65) << generated.text();
  EXPECT_EQ(count(generated.err, "is an adapter of another model"), 1) << generated.text();

  // PEFT has no hash: a name that is another model's is warned of.
  fs::remove(record);
  must(generate());
  EXPECT_EQ(count(generate().err, "warning: "), 0);
  const fs::path config = job.folder() / "adapter/adapter_config.json";
  core::Json changed = core::read_json(config, 1 << 20);
  changed["base_model_name_or_path"] = "somebody/Other-7B";
  write_file(config, changed.dump());
  const Outcome warned = job.run(2, from);
  must(warned);
  EXPECT_EQ(count(warned.err, "names the base somebody/Other-7B, the model is model"), 1)
      << warned.text();
  changed["base_model_name_or_path"] = "somebody/MODEL";
  write_file(config, changed.dump());
  EXPECT_EQ(count(generate().err, "warning: "), 0);
}

TEST(Generate, FromARunsOutputSaysWhatToExportAndWorksInsideIt) {
  const Job job("adapter_path.output", settings({"train.max_steps=0"}));
  must(job.run(1));
  const auto generate = [&](const std::string& model) {
    return Words{"generate", model, "Count.", "--max-tokens", "1"};
  };
  const Outcome refused = command(job, generate("output"));
  EXPECT_EQ(refused.exit_code, 65) << refused.text();
  EXPECT_EQ(count(refused.err, "finetune export output OUT"), 1) << refused.text();
  Words with_run = generate("model");
  with_run.insert(with_run.end(), {"--adapter", "output"});
  EXPECT_EQ(command(job, with_run).exit_code, 65);
  const fs::path output = job.folder() / "output";
  ASSERT_TRUE(fs::exists(output / "input.resolved.toml"));
  must(run_finetune(1, generate(job.model().string()), output));
}

TEST(AdapterPath, BadAdaptersEndEveryRankWithOneError) {
  const Job job("adapter_path.bad", settings({"adapter.path=adapter"}));
  Words first = rich;
  first.push_back("adapter.path=\"\"");
  make_adapter(job, first);
  const auto expect = [&](const Words& more, int exit_code, const std::string& text) {
    const Outcome outcome = job.run(2, more);
    EXPECT_EQ(outcome.exit_code, exit_code) << outcome.text();
    EXPECT_EQ(count(outcome.err, text), 1) << outcome.text();
    EXPECT_EQ(count(outcome.err, "error: "), 1) << outcome.text();
  };
  expect({"adapter.lora_r=16"}, 78, "adapter.lora_r = 16, the adapter has 4");
  expect({"adapter.name=none"}, 78, "but adapter.name = \"none\"");
  expect({"adapter.path=gone"}, 65, "gone: no such folder");
  expect({"adapter.path=model"}, 65, "it is a whole model, not an adapter");
  const fs::path config = job.folder() / "adapter/adapter_config.json";
  core::Json changed = core::read_json(config, 1 << 20);
  changed["init_lora_weights"] = "pissa";
  write_file(config, changed.dump());
  expect({}, 65, "init_lora_weights = \"pissa\"");
  changed["init_lora_weights"] = true;
  changed["r"] = 8;
  write_file(config, changed.dump());
  expect({}, 65, "it is an adapter of another model");
  changed["r"] = 4;
  write_file(config, changed.dump());
  // A number that is not finite is seen by the rank alone that keeps it.
  const fs::path tensors = job.folder() / "adapter/adapter_model.safetensors";
  std::string bytes = read_file(tensors);
  bytes.replace(bytes.size() - 4, 4, std::string("\x00\x00\xC0\x7F", 4));
  write_file(tensors, bytes);
  expect({}, 65, "holds nan at ");
  write_file(tensors, bytes.substr(0, bytes.size() / 2));
  expect({}, 65, "adapter_model.safetensors");
  const Outcome plan = command(job, {"plan", "job.toml", "adapter.name=lora", "adapter.path=gone"});
  EXPECT_EQ(plan.exit_code, 65) << plan.text();
}

}  // namespace
}  // namespace finetune::tests::adapter_path_test
