// SPDX-License-Identifier: Apache-2.0
// How long a run is, how its learning rate goes, when it validates and saves.
#include <gtest/gtest.h>

#include "support/messages.hpp"
#include "unit/migrate/sample.hpp"

namespace finetune::migrate::tests::run_length_test {
namespace {

using finetune::tests::expect_line_about;

const std::string trl = "model_name_or_path: m\ndataset_name: a/b\noutput_dir: o\n";

void expect_line(const std::string& text, const std::string& line) {
  EXPECT_TRUE(has_line(text, line)) << line << " is not in\n" << text;
}
void expect_no(const std::string& text, const std::string& part) {
  EXPECT_EQ(text.find(part), std::string::npos) << part << " is in\n" << text;
}

TEST(MigrateRun, WritesOutTheWarmUpOfAxolotl) {
  const std::string unknown = deck(least);
  expect_line(unknown, "warmup_ratio = 0.03");
  expect_line_about(unknown, {"optimizer.warmup_ratio", "100"});
  expect_line(deck(least + "max_steps: 1000\n"), "warmup_steps = 30");
  expect_line(deck(least + "max_steps: 10000\n"), "warmup_steps = 100");
  // One step is two there.
  expect_line(deck(least + "max_steps: 40\n"), "warmup_steps = 2");
  expect_no(deck(least + "max_steps: 10\n"), "\nwarmup");
  expect_no(deck(least + "warmup_steps: 0\n"), "\nwarmup");
  expect_line(deck(least + "warmup_steps: 10\n"), "warmup_steps = 10");
}

TEST(MigrateRun, TakesAdafactorWithItsOwnNumbers) {
  for (const std::string& made :
       {deck(least + "optimizer: adafactor\nadam_beta1: 0.8\nadam_epsilon: 1e-6\n"),
        deck(trl + "optim: adafactor\nadam_beta1: 0.8\nadam_epsilon: 1e-6\n")}) {
    expect_line(made, "name = \"adafactor\"");
    expect_no(made, "\nbeta1 = ");
    expect_no(made, "\nbeta2 = ");
    expect_no(made, "\neps = ");
    expect_line_about(made, {"optimizer.lr"});
  }
}

TEST(MigrateRun, TakesPartsOfEpochs) {
  expect_line(deck(least + "num_epochs: 2.25\n"), "epochs = 2.25  # num_epochs");
  expect_line(deck(least + "num_epochs: 3.0\n"), "epochs = 3  # num_epochs");
  expect_line(deck(trl + "num_train_epochs: 0.5\n"), "epochs = 0.5  # num_train_epochs");
  const std::string saved = deck(trl + "num_train_epochs: 0.5\nsave_steps: 0.5\n");
  expect_line(saved, "save_epochs = 0.25  # save_steps = 0.5 x 0.5 epochs");
}

TEST(MigrateRun, LeavesOutWarmUpThatAConstantRateDoesNotHave) {
  const std::string made = deck(trl + "lr_scheduler_type: constant\nwarmup_ratio: 0.1\n");
  expect_no(made, "\nwarmup");
  expect_line_about(made, {"warmup_ratio = 0.1", "\"constant\""});
  expect_line(deck(trl + "lr_scheduler_type: constant_with_warmup\nwarmup_ratio: 0.1\n"),
              "warmup_ratio = 0.1");
  const std::string axolotl = deck(least + "lr_scheduler: constant\n");
  expect_no(axolotl, "warmup");
}

TEST(MigrateRun, SaysHowDeepSpeedWarmsUp) {
  const Options options = {.given = {{"model.path", "\"m\""}, {"data.path", "\"d\""}}};
  const auto with = [&](const std::string& type, const std::string& more) {
    return deck(
        "{\"train_batch_size\": 8, \"optimizer\": {\"type\": \"AdamW\"}, \"scheduler\": "
        "{\"type\": \"" +
            type + "\", \"params\": {\"warmup_num_steps\": 10" + more + "}}}",
        options);
  };
  for (const char* type : {"WarmupLR", "WarmupDecayLR"}) {
    const std::string made = with(type, "");
    expect_line(made, "warmup_steps = 10");
    expect_line_about(made, {"warmup_type"});
    expect_line_about(with(type, ", \"warmup_type\": \"log\""),
                      {"#   scheduler.params.warmup_type = log: "});
    expect_no(with(type, ", \"warmup_type\": \"linear\""), "logarithm");
  }
}

TEST(MigrateRun, GivesScheduleFreeNoSchedule) {
  expect_line(deck(trl + "optim: schedule_free_adamw\n"), "schedule = \"constant\"");
  expect_line(deck(least + "optimizer: schedule_free_adamw\n"), "schedule = \"constant\"");
  expect_line(deck(trl + "optim: adamw_torch\n"), "schedule = \"linear\"");
}

TEST(MigrateRun, TakesMuonForLlamaFactorysOptimizer) {
  const std::string factory =
      "model_name_or_path: m\nstage: sft\nfinetuning_type: full\ndataset: d.json\n"
      "learning_rate: 1e-4\noptim: adamw_torch\nuse_muon: ";
  expect_line(deck(factory + "true\n"), "name = \"muon\"");
  expect_line(deck(factory + "false\n"), "name = \"adamw\"");
}

TEST(MigrateRun, DoesNotValidateOnTheFileThatIsTrainedOn) {
  const std::string file = "model_name_or_path: m\ndataset_name: d.json\noutput_dir: o\n";
  const std::string made = deck(file + "eval_strategy: steps\neval_steps: 10\n", {.from = "trl"});
  expect_no(made, "\nvalidation_path");
  expect_no(made, "\nvalidation_split");
  expect_line_about(made, {"dataset_name = d.json"});
  expect_line(deck(trl + "eval_strategy: steps\n"), "validation_path = \"a/b\"");
}

TEST(MigrateRun, TakesHeldOutSamplesOffItsSteps) {
  const std::string factory =
      "model_name_or_path: m\nstage: sft\ndataset: d.json\nlearning_rate: 1e-4\n"
      "per_device_train_batch_size: 8\nmax_samples: 1000\nnum_train_epochs: 1\n";
  expect_line(deck(factory), "max_steps = 125");
  expect_line(deck(factory + "val_size: 0.1\n"), "max_steps = 113");
  expect_line(deck(factory + "val_size: 200\n"), "max_steps = 100");
}

TEST(MigrateRun, SavesAtTheEndWhereItSavesNotByItself) {
  for (const char* kind : {"\"no\"", "no", "best"}) {
    const std::string made = deck(trl + "save_strategy: " + kind + "\n");
    expect_line(made, "save_steps = 0");
    expect_line_about(made, {"#   save_strategy = "});
  }
}

}  // namespace
}  // namespace finetune::migrate::tests::run_length_test
