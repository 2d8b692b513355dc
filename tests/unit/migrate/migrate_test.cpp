// SPDX-License-Identifier: Apache-2.0
// What keys of several programs mean together, and what stops a deck.
#include "migrate/migrate.hpp"

#include "migrate/detail/settle.hpp"
#include "support/messages.hpp"
#include "unit/migrate/sample.hpp"

namespace finetune::migrate::tests::migrate_test {
namespace {

using finetune::tests::expect_line_about;
using finetune::tests::expect_message;
using finetune::tests::expect_words;

void expect_line(const std::string& text, const std::string& line) {
  EXPECT_TRUE(has_line(text, line)) << line << " is not in\n" << text;
}
TEST(Migrate, RecognisesProgramsByTheirKeys) {
  expect_line_about(deck(least), {"axolotl"});
  expect_words(refusal("stage: sft\nmodel_name_or_path: m\n"));
  expect_words(refusal("colour: red\n"));
  expect_words(refusal(least, {.from = "keras"}, core::ErrorKind::command_line));
  // A key of the Trainer is TRL's, unless it is told otherwise.
  const std::string plain = "model_name_or_path: m\ndataset_name: d.json\noutput_dir: o\n";
  expect_line_about(deck(plain), {"TRL"});
}

TEST(Migrate, ListsEveryKeyThatIsNotInTheDeck) {
  const std::string text =
      deck(least + "wandb_project: p\ntf32: true\nnew_thing: {a: 1}\nhub_model_id:\n");
  expect_line_about(text, {"wandb_project", "train.output"});
  expect_line_about(text, {"tf32", "fp32"});
  expect_line_about(text, {"new_thing.a = 1"});
  expect_line_about(text, {"hub_model_id"});
}

TEST(Migrate, ReportsEverythingThatStopsItAtOnce) {
  const std::string text =
      refusal("base_model: m\nrl: dpo\noptimizer: galore_adamw\nnum_epochs: 0\n");
  expect_message(text, "theirs.yml",
                 {"theirs.yml:2", "rl = dpo", "theirs.yml:3", "optimizer = galore_adamw",
                  "optimizer.name=", "num_epochs = 0", "train.epochs", "4 problems"});
}

TEST(Migrate, TakesKeysOfTheCommandLineForThoseOfTheFile) {
  Options options;
  options.given = {{"optimizer.name", "\"lion\""}, {"train.max_steps", "7"}};
  const std::string text = deck(least + "optimizer: galore_adamw\nnum_epochs: 0\n", options);
  expect_line(text, "name = \"lion\"");
  expect_line(text, "max_steps = 7");
  expect_line_about(text, {"optimizer = galore_adamw", "optimizer.name"});
}

TEST(Migrate, TakesPromptsThatAreWrittenByAFormat) {
  const std::string begin = "base_model: m\ndatasets:\n  - path: d.json\n    name: en\n    type:\n";
  const std::string text = deck(begin +
                                "      field_instruction: q\n      field_output: a\n"
                                "      format: \"[INST] {instruction}\\n{input} [/INST]\"\n"
                                "      no_input_format: \"[INST] {instruction} [/INST]\"\n");
  expect_line(text, "format = \"alpaca\"");
  expect_line(text,
              "prompt_template = \"{% if input is defined and input %}[INST] {{ q }}\\n"
              "{{ input }} [/INST]{% else %}[INST] {{ q }} [/INST]{% endif %}\"");
  expect_line(text, "answer_column = \"a\"");
  expect_line(text, "subset = \"en\"");
  EXPECT_EQ(text.find("prompt_column"), std::string::npos) << text;
  const std::string other = deck(begin + "      field_instruction: q\n      format: \"{{x}}\"\n");
  expect_line(other, "prompt_column = \"q\"");
  expect_line_about(other, {"type.format", "data.template"});
  expect_message(
      refusal(begin + "      format: \"{instruction}:\"\n  - {path: e.json, type: alpaca}\n"), "",
      {"data.prompt_template"});
}

TEST(Migrate, TakesNewTokensAndRatesOfAdapters) {
  const std::string text =
      deck(least + "adapter: lora\nlora_r: 8\ntokens: [\"<a>\", \"<b>\"]\nloraplus_lr_ratio: 16\n");
  expect_line(text, "add_tokens = [\"<a>\", \"<b>\"]");
  expect_line(text, "loraplus_lr_ratio = 16");
  for (const std::string key : {"add_special_tokens", "new_special_tokens"}) {
    const std::string factory = deck(
        "stage: sft\nmodel_name_or_path: m\nfinetuning_type: lora\ndataset: d.json\n"
        "learning_rate: 1e-4\nresize_vocab: true\n" +
        key + ": <a>, <b>\n");
    expect_line(factory, "add_special_tokens = [\"<a>\", \"<b>\"]");
    EXPECT_EQ(factory.find("#   " + key), std::string::npos) << factory;
  }
}

TEST(Migrate, MultipliesBatchesByRanks) {
  const std::string batch = least + "micro_batch_size: 2\ngradient_accumulation_steps: 4\n";
  expect_line(deck(batch), "global_batch = 8");
  expect_line_about(deck(batch), {"--ranks"});
  expect_line(deck(batch, {.ranks = 3}), "global_batch = 24");
  // Ranks that share a sequence have none of their own.
  const std::string shared = deck(batch + "context_parallel_size: 2\n", {.ranks = 4});
  expect_line(shared, "global_batch = 16");
  expect_line(shared, "cp = 2");
  expect_line_about(deck(batch + "tensor_parallel_size: 2\n"), {"DECK.toml", "--ranks", "2"});
  // Experts are shared out over ranks that have sequences of their own.
  expect_line(deck(batch + "expert_parallel_size: 4\n"), "global_batch = 32");
}

TEST(Migrate, KeepsFourBitsForAdaptersAlone) {
  expect_line(deck(least + "adapter: lora\nload_in_4bit: true\n"), "name = \"qlora\"");
  expect_message(refusal(least + "load_in_4bit: true\n"), "", {"4"});
  const std::string full = deck(least + "lora_r: 8\n");
  expect_line(full, "name = \"none\"");
  EXPECT_EQ(full.find("\nlora_r"), std::string::npos);
  expect_line_about(deck(least + "adapter: lora\nload_in_8bit: true\n"), {"load_in_8bit", "16"});
}

TEST(Migrate, NamesTensorsThatAreTrained) {
  const std::string axolotl =
      deck(least + "unfrozen_parameters:\n  - ^lm_head.weight$\n  - model.layers.4[4-7]+.mlp\n");
  expect_line(axolotl, R"x(trainable = ["^lm_head.weight$", "^(model.layers.4[4-7]+.mlp)"])x");
  expect_words(refusal(least + "unfrozen_parameters: [\"model.embed_tokens.weight$[:32000]\"]\n"));
  const std::string factory =
      "model_name_or_path: m\nstage: sft\nfinetuning_type: freeze\ndataset: d.json\n"
      "dataset_dir: ONLINE\n";
  const std::string first =
      deck(factory +
           "freeze_trainable_layers: -2\nfreeze_trainable_modules: mlp,self_attn\n"
           "freeze_extra_modules: embed_tokens\n");
  expect_line(first, R"x(trainable = ["layers[.](0|1)[.].*(mlp|self_attn)", "embed_tokens"])x");
  expect_line(first, "name = \"none\"");
  expect_line(deck(factory + "freeze_trainable_layers: -1\n"), R"(trainable = "layers[.](0)[.]")");
  expect_words(refusal(factory + "freeze_trainable_layers: 2\n"));
}

TEST(Migrate, TakesRatesOfGroupsForMultiples) {
  expect_line(
      deck(least + "lr_groups:\n  - {name: o, modules: [self_attn.o_proj, q_proj], lr: 2e-4}\n"
                   "embedding_lr: 1e-5\n"),
      R"(lr_pattern = ["self_attn.o_proj=2", "q_proj=2", "(embed_tokens|lm_head)=0.1"])");
  expect_line(deck(least + "embedding_lr_scale: 0.5\n"),
              R"x(lr_pattern = "(embed_tokens|lm_head)=0.5")x");
}

TEST(Migrate, KeepsWhatSchedulesOfTransformersRead) {
  const std::string trl =
      "model_name_or_path: m\ndataset_name: d.json\noutput_dir: o\nlearning_rate: 1e-4\n";
  const std::string restarts = deck(trl +
                                    "lr_scheduler_type: cosine_with_restarts\n"
                                    "lr_scheduler_kwargs: {num_cycles: 3}\n");
  expect_line(restarts, "schedule = \"cosine_with_restarts\"");
  expect_line(restarts, "num_cycles = 3");
  const std::string power = deck(trl +
                                 "lr_scheduler_type: polynomial\n"
                                 "lr_scheduler_kwargs: {power: 2.5, lr_end: 1e-5}\n");
  expect_line(power, "power = 2.5");
  expect_line(power, "min_lr_ratio = 0.1");
  const std::string root = deck(trl +
                                "lr_scheduler_type: inverse_sqrt\n"
                                "lr_scheduler_kwargs: {timescale: 500}\n");
  expect_line(root, "schedule = \"inverse_sqrt\"");
  expect_line(root, "timescale_steps = 500");
  expect_line_about(
      deck(trl + "lr_scheduler_type: cosine\nlr_scheduler_kwargs: {num_cycles: 0.5}\n"),
      {"cosine"});
}

TEST(Migrate, TakesNoiseOnEmbeddings) {
  expect_line(deck(least + "noisy_embedding_alpha: 5\n"), "neftune_alpha = 5");
  expect_line(deck("model_name_or_path: m\ndataset_name: d.json\noutput_dir: o\n"
                   "neftune_noise_alpha: 10\n"),
              "neftune_alpha = 10");
  const std::string none = deck(least + "neftune_noise_alpha: null\n");
  EXPECT_EQ(none.find("\nneftune_alpha"), std::string::npos) << none;
}

TEST(Migrate, ReadsWarmUpAsStepsOrAPart) {
  expect_line(deck(least + "warmup_steps: 10\n"), "warmup_steps = 10");
  expect_line(deck(least + "warmup_steps: 0.1\n"), "warmup_ratio = 0.1");
  expect_line(deck(least + "warmup_ratio: 0.03\n"), "warmup_ratio = 0.03");
}

TEST(Migrate, StopsEarlyOnlyWhereThereIsValidationInTraining) {
  const std::string patient = least + "val_set_size: 0.1\nearly_stopping_patience: 3\n";
  expect_line(deck(patient + "eval_steps: 20\n"), "early_stopping_patience = 3");
  expect_line(deck(patient + "evals_per_epoch: 2\n"), "early_stopping_patience = 3");
  expect_line_about(deck(patient), {"#   early_stopping_patience = 3: "});
}

TEST(Migrate, CountsEpochsBetweenSavesAndValidations) {
  const std::string validated = least + "val_set_size: 0.1\nnum_epochs: 3\n";
  const std::string times = deck(validated + "evals_per_epoch: 4\nsaves_per_epoch: 2\n");
  expect_line(times, "validate_epochs = 0.25");
  expect_line(times, "save_epochs = 0.5");
  // The number of steps may be a default there, and is not asked for.
  const std::string each = deck(
      validated + "eval_strategy: epoch\neval_steps: 7\nsave_strategy: epoch\nsave_steps: 7\n");
  expect_line(each, "validate_epochs = 1.0");
  expect_line(each, "save_epochs = 1.0");
  EXPECT_EQ(each.find("\nsave_steps"), std::string::npos) << each;
  EXPECT_EQ(each.find("\nvalidate_steps"), std::string::npos) << each;
  // A part of all steps, of an unknown number.
  const std::string parts = deck(validated + "eval_steps: 0.1\nsave_steps: 0.25\n");
  expect_line(parts, "validate_epochs = 0.3");
  expect_line(parts, "save_epochs = 0.75");
  expect_line(deck(validated + "eval_steps: 20\nsave_steps: 30\n"), "save_steps = 30");
  const std::string tune = deck(
      "model: {_component_: torchtune.models.llama3.llama3_8b}\n"
      "checkpointer: {checkpoint_dir: m}\n"
      "dataset: {_component_: torchtune.datasets.alpaca_dataset, source: d}\n"
      "save_every_n_epochs: 2\n");
  expect_line(tune, "save_epochs = 2.0");
  // Of programs that save every 500 steps by default.
  const std::string trl =
      deck("model_name_or_path: m\ndataset_name: d.json\noutput_dir: o\nsave_strategy: epoch\n");
  expect_line(trl, "save_epochs = 1.0");
  EXPECT_EQ(trl.find("\nsave_steps"), std::string::npos) << trl;
}

TEST(Migrate, ReadsDeepSpeedByTheNameOfAFileThatIsNotThere) {
  const std::string text = deck(least + "deepspeed: configs/zero3_bf16_cpuoffload_all.json\n");
  expect_line(text, "sharding = \"FULL_SHARD\"");
  expect_line(text, "offload = true");
  expect_line_about(text, {"deepspeed = configs/zero3_bf16_cpuoffload_all.json"});
}

TEST(Migrate, UnderstandsSplitsWithAPart) {
  EXPECT_EQ(parse_split("train[:20%]").part, 0.2);
  EXPECT_EQ(parse_split("train[:20%]").name, "train");
  EXPECT_EQ(parse_split("").part, 1);
  for (const char* text :
       {"train[:100]", "train[10%:]", "train[:0%]", "train[:nan%]", "train[:101%]"})
    EXPECT_FALSE(parse_split(text).is_understood) << text;
}

TEST(Migrate, FindsTheMatricesThatARegularExpressionMeans) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(targets_of(R"(model.layers.[\d]+.self_attn.(q|v)_proj)"), (Names{"q_proj", "v_proj"}));
  EXPECT_EQ(targets_of(R"(.*\.(gate|down)_proj)"), (Names{"gate_proj", "down_proj"}));
  EXPECT_EQ(targets_of("("), Names{});
  EXPECT_EQ(targets_of("(a*)*b"), Names{});
  EXPECT_EQ(targets_of("((((.*)*)*)*)*!"), Names{}) << "ends, whatever it costs to match";
}

TEST(Migrate, RefusesDataThatADeckCannotName) {
  const std::string two =
      "base_model: m\ndatasets:\n  - {path: a, type: completion, field: x}\n"
      "  - {path: b, type: completion, field: y}\n";
  expect_message(refusal(two), "", {"data.text_column"});
  expect_message(refusal("base_model: m\ndatasets:\n  - {path: a, type: my_own.load}\n"), "",
                 {"type = my_own.load"});
}

TEST(Migrate, QuotesWhatAFileSaysSoThatItStaysAComment) {
  const std::string text = deck(
      least + "wandb_nam\\u: \"x\"\n\"a\\nb = 1\": \"c\\n[train]\"\noutput_dir: \"o\\\"\\n\"\n");
  EXPECT_EQ(text.find("\nb = 1"), std::string::npos) << text;
  EXPECT_EQ(text.find("\n[train]\""), std::string::npos) << text;
  expect_line_about(text, {"output = \"o\\\"\\n\""});
}

}  // namespace
}  // namespace finetune::migrate::tests::migrate_test
