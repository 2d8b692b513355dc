// SPDX-License-Identifier: Apache-2.0
// What a deck may say of how all weights are trained: runs that move between ranks end in the bits
// of one that did not.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "restart/job.hpp"
#include "support/folders.hpp"
#include "weights/model_files.hpp"

namespace finetune::tests::options_test {
namespace {

namespace fs = std::filesystem;

constexpr int exit_resubmit = 75;

struct Kind {
  const char* name;
  Words settings;
};

const Kind kinds[] = {
    {"Frozen", {"train.frozen=[\"embed_tokens\",\"layers[.]0[.]\"]", "precision.mode=bf16-mixed"}},
    {"SomeOfALayerFrozen",
     {"train.trainable=[k_proj,up_proj,norm]", "precision.mode=32-true",
      "train.activation_checkpointing=full"}},
    {"FrozenInFp8", {"train.frozen=self_attn", "precision.mode=fp8-mixed"}},
    {"FrozenInAdamw8bit",
     {"train.frozen=mlp", "optimizer.name=adamw8bit", "precision.mode=bf16-mixed"}},
    {"RatesOfTheirOwn",
     {"optimizer.lr_pattern=[\"embed_tokens=0.1\",\"norm=2.5\",\"layers[.]1[.]=0.5\"]",
      "optimizer.weight_decay_exclude=k_proj|lm_head", "precision.mode=bf16-true"}},
    {"Noise",
     {"train.neftune_alpha=5", "data.packing=true", "train.activation_checkpointing=full",
      "precision.mode=bf16-mixed"}},
    {"NoiseAndAnAdapter",
     {"train.neftune_alpha=5", "adapter.name=lora", "adapter.lora_dropout=0.1",
      "precision.mode=32-true"}},
    {"Restarts",
     {"optimizer.schedule=cosine_with_restarts", "optimizer.num_cycles=3",
      "precision.mode=32-true"}},
    {"MeanOfWeights",
     {"train.ema_decay=0.9", "data.validation_fraction=0.2", "train.validate_steps=3",
      "precision.mode=bf16-mixed"}},
    {"MeanOfWeightsInBf16",
     {"train.ema_decay=0.9", "optimizer.name=lion", "data.validation_fraction=0.2",
      "train.validate_steps=3", "precision.mode=bf16-true"}},
    {"MeanOfAnAdapter",
     {"train.ema_decay=0.9", "optimizer.name=adamw8bit", "adapter.name=lora",
      "data.validation_fraction=0.2", "precision.mode=32-true"}},
    {"NoiseScale", {"metrics.noise_steps=2", "precision.mode=bf16-mixed"}},
    {"NoiseScaleOfAnAdapter",
     {"metrics.noise_steps=1", "adapter.name=lora", "precision.mode=32-true"}},
    {"RatesOfAnAdapter",
     {"adapter.name=lora", "adapter.loraplus_lr_ratio=4",
      "optimizer.lr_pattern=[\"layers[.]0[.]=3\"]", "precision.mode=32-true"}}};

Words settings_of(const Kind& kind) {
  return with({"train.max_steps=12", "train.global_batch=6", "train.micro_batch=2",
               "train.determinism=topology", "optimizer.lr=1e-3", "optimizer.weight_decay=0.1",
               "checkpoint.save_steps=5", "metrics.log_steps=1"},
              kind.settings);
}

class OptionRun : public testing::TestWithParam<Kind> {
 protected:
  // A micro-batch has the same bits only from as many threads.
  void SetUp() override { ::setenv("OMP_NUM_THREADS", "1", 1); }
  void TearDown() override { ::unsetenv("OMP_NUM_THREADS"); }
};

TEST_P(OptionRun, MovedBetweenRanksAndStrategiesEndsInTheSameBits) {
  const Kind& kind = GetParam();
  const Job straight(std::string("option.straight.") + kind.name, settings_of(kind));
  const Job moved(std::string("option.moved.") + kind.name, settings_of(kind));
  const Outcome whole = straight.run(1);
  ASSERT_EQ(whole.exit_code, 0) << whole.text();
  const std::vector<std::pair<int, std::string>> starts = {{2, "parallel.sharding=FULL_SHARD"},
                                                           {3, "parallel.sharding=SHARD_GRAD_OP"},
                                                           {1, "parallel.sharding=NO_SHARD"}};
  for (const auto& [ranks, sharding] : starts) {
    const Outcome outcome = moved.run(ranks, {sharding, "train.stop_after_steps=4"});
    ASSERT_EQ(outcome.exit_code, ranks == 1 ? 0 : exit_resubmit) << outcome.text();
  }
  expect_same_metrics(moved, straight);
  EXPECT_TRUE(moved.checkpoint_bytes(12) == straight.checkpoint_bytes(12));
  EXPECT_LT(straight.steps().back().at("loss").get<double>(),
            straight.steps().front().at("loss").get<double>());
}

INSTANTIATE_TEST_SUITE_P(Kinds, OptionRun, testing::ValuesIn(kinds),
                         [](const auto& info) { return info.param.name; });

std::vector<float> values_of(const weights::ModelFiles& files, const std::string& name) {
  const auto& entry = files.entry(name);
  std::vector<float> values(static_cast<std::size_t>(core::num_elements(entry.shape)));
  files.read({.name = name,
              .shape = entry.shape,
              .dtype = core::DType::f32,
              .offset = 0,
              .count = std::ssize(values)},
             std::as_writable_bytes(std::span(values)));
  return values;
}

TEST(Frozen, TensorsAreExportedFromTheModelAndNotSaved) {
  const Job job("option.frozen", {"train.frozen=[\"embed_tokens\",\"layers[.]0[.]\"]",
                                  "train.max_steps=3", "precision.mode=32-true"});
  const Outcome outcome = job.run(2);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.text();
  EXPECT_EQ(count(outcome.out, "frozen: layer 0; model.embed_tokens.weight"), 1) << outcome.out;
  EXPECT_EQ(count(job.checkpoint_bytes(3), "embed_tokens"), 0);
  EXPECT_GT(count(job.checkpoint_bytes(3), "lm_head"), 0);
  job.exported();
  const auto before = weights::ModelFiles::open(job.model());
  const auto after = weights::ModelFiles::open(job.folder() / "exported");
  ASSERT_EQ(before.names(), after.names());
  for (const std::string& name : before.names()) {
    const bool is_frozen = name.find("embed_tokens") != std::string::npos ||
                           name.find("layers.0.") != std::string::npos;
    EXPECT_EQ(values_of(before, name) == values_of(after, name), is_frozen) << name;
  }
}

/// The tensor of the model that was exported, less the model's.
std::vector<float> moved(const Job& job, const std::string& name) {
  std::vector<float> values = values_of(weights::ModelFiles::open(job.folder() / "exported"), name);
  const std::vector<float> before = values_of(weights::ModelFiles::open(job.model()), name);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] -= before[i];
  return values;
}

/// AdamW's first step moves each weight by about its learning rate, wherever the gradient is.
TEST(Rates, OfTensorsAreMultiplesOfTheOthers) {
  const Words settings = {"train.max_steps=1", "precision.mode=32-true", "optimizer.lr=1e-3",
                          "optimizer.schedule=constant"};
  const Job plain("option.rates_plain", settings);
  const Job other("option.rates_other",
                  with(settings, {"optimizer.lr_pattern=[\"mlp=0.25\"]", "optimizer.weight_decay=1",
                                  "optimizer.weight_decay_exclude=mlp"}));
  ASSERT_EQ(plain.run(1).exit_code, 0);
  ASSERT_EQ(other.run(1).exit_code, 0);
  plain.exported();
  other.exported();
  const std::string quarter = "model.layers.1.mlp.up_proj.weight", norm = "model.norm.weight";
  const std::vector<float> of_plain = moved(plain, quarter), of_other = moved(other, quarter);
  for (std::size_t i = 0; i < of_plain.size(); ++i)
    ASSERT_NEAR(of_other[i], 0.25 * of_plain[i], 1e-7) << i;
  EXPECT_EQ(moved(other, norm), moved(plain, norm));
  const std::string decayed = "model.layers.1.self_attn.q_proj.weight";
  EXPECT_NE(moved(other, decayed), moved(plain, decayed));
}

/// Runs without a learning rate keep weights whose mean is themselves; with one, the mean of two
/// updates lies between them.
TEST(MeanOfWeights, IsExportedAndEvaluatedInTheirPlace) {
  const Words settings = {"train.max_steps=2",      "precision.mode=32-true",
                          "optimizer.lr=1e-3",      "optimizer.schedule=constant",
                          "train.ema_decay=0.5",    "data.validation_fraction=0.2",
                          "checkpoint.save_steps=1"};
  const Job job("option.ema", settings);
  const Outcome outcome = job.run(2);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.text();
  const auto exported = [&](const std::string& checkpoint, const std::string& to, bool is_ema) {
    Words words = {"export", "output/" + checkpoint, to};
    if (is_ema) words.push_back("--ema");
    const Outcome written = run_finetune(1, words, job.folder());
    EXPECT_EQ(written.exit_code, 0) << written.text();
    return weights::ModelFiles::open(job.folder() / to);
  };
  const auto first = exported("step-0000000001", "first", false),
             second = exported("step-0000000002", "second", false),
             mean = exported("step-0000000002", "mean", true);
  ASSERT_EQ(mean.names(), second.names());
  for (const std::string& name : mean.names()) {
    const auto w1 = values_of(first, name), w2 = values_of(second, name), m = values_of(mean, name);
    for (std::size_t i = 0; i < m.size(); ++i)
      ASSERT_NEAR(m[i], (w1[i] + 2 * w2[i]) / 3, 1e-6) << name;
  }
  const std::string card = read_file(job.folder() / "mean/README.md");
  EXPECT_EQ(count(card, "exponential mean"), 1) << card;
  EXPECT_EQ(count(card, "validation loss"), 0) << card;

  std::vector<core::Json> validations;
  for (const core::Json& row : job.metrics())
    if (row.contains("validation_loss")) validations.push_back(row);
  ASSERT_EQ(validations.size(), 2u);
  EXPECT_FALSE(validations.front().contains("ema_validation_loss"));
  const double of_mean = validations.back().at("ema_validation_loss").get<double>();
  EXPECT_NE(of_mean, validations.back().at("validation_loss").get<double>());
  EXPECT_NEAR(of_mean, validations.back().at("validation_loss").get<double>(), 0.3);
}

/// The last value of `field` in the run's metrics.
double last(const fs::path& output, const char* field) {
  std::ifstream file(output / "metrics.jsonl");
  double value = 0;
  for (std::string line; std::getline(file, line);) {
    const core::Json row = core::parse_json(line, "metrics.jsonl");
    if (row.contains(field)) value = row.at(field).get<double>();
  }
  return value;
}

/// What a run validated is what it exports: a run that trains nothing validates the same.
void expect_exported_as_validated(const Job& job, const Words& settings, const char* field,
                                  const Words& how) {
  const Outcome outcome = job.run(2);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.text();
  const Outcome exported =
      run_finetune(1, with({"export", "output", "exported"}, how), job.folder());
  ASSERT_EQ(exported.exit_code, 0) << exported.text();
  const Outcome again =
      run_finetune(1,
                   with(with({"job.toml"}, settings),
                        {"model.path=exported", "train.output=again", "train.max_steps=0"}),
                   job.folder());
  ASSERT_EQ(again.exit_code, 0) << again.text();
  const double expected = last(job.output(), field);
  EXPECT_GT(expected, 0);
  EXPECT_NEAR(last(job.folder() / "again", "validation_loss"), expected, 1e-5);
}

const Words validated = {"train.max_steps=5", "precision.mode=32-true", "optimizer.lr=1e-3",
                         "optimizer.schedule=constant", "data.validation_fraction=0.2"};

TEST(MeanOfWeights, IsExportedAsItWasValidated) {
  const Words settings = with(validated, {"train.ema_decay=0.7"});
  const Job job("option.ema_validated", settings);
  expect_exported_as_validated(job, settings, "ema_validation_loss", {"--ema"});
  EXPECT_NE(last(job.output(), "validation_loss"), last(job.output(), "ema_validation_loss"));
}

/// Its trained weights, the masters of the checkpoint, are others.
TEST(ScheduleFree, IsExportedAsItWasValidated) {
  const Words settings =
      with(validated, {"optimizer.name=schedule_free", "optimizer.warmup_steps=2"});
  const Job job("option.schedule_free", settings);
  expect_exported_as_validated(job, settings, "validation_loss", {});
}

TEST(MeanOfWeights, IsRefusedWhereThereIsNone) {
  const Job job("option.no_ema", {"train.max_steps=1", "precision.mode=32-true"});
  ASSERT_EQ(job.run(1).exit_code, 0);
  const Outcome outcome = run_finetune(1, {"export", "output", "out", "--ema"}, job.folder());
  EXPECT_EQ(outcome.exit_code, 64) << outcome.text();
  EXPECT_EQ(count(outcome.err,
                  "error: finetune export --ema: output/step-0000000001 has no mean of weights "
                  "(its run had train.ema_decay = 0). Leave --ema out.\n"),
            1)
      << outcome.text();
}

TEST(Frozen, TensorsOfAnotherModelAreRefused) {
  const Job job("option.other_base", {"train.frozen=layers", "train.max_steps=4",
                                      "checkpoint.save_steps=2", "precision.mode=32-true"});
  ASSERT_EQ(job.run(2, {"train.stop_after_steps=2"}).exit_code, exit_resubmit);
  // A bit of the last tensor but the final norm: a layer's.
  std::fstream file(job.model() / "model.safetensors",
                    std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-4 * 64 - 5, std::ios::end);
  const char byte = static_cast<char>(file.get() ^ 1);
  file.seekp(-4 * 64 - 5, std::ios::end);
  file.put(byte);
  file.close();
  const Words export_it = {"export", "output", "exported"};
  for (const Outcome& outcome : {job.run(2), run_finetune(1, export_it, job.folder())}) {
    EXPECT_EQ(outcome.exit_code, 65) << outcome.text();
    EXPECT_EQ(count(outcome.err, "is not the model that output/step-0000000002 was trained on"), 1)
        << outcome.text();
  }
}

}  // namespace
}  // namespace finetune::tests::options_test
