// SPDX-License-Identifier: Apache-2.0
// Models that are given new tokens: their rows, what trains them, tokenizers, restarts, exports.
#include <gtest/gtest.h>

#include <cstdlib>

#include "restart/adapter_job.hpp"
#include "restart/job.hpp"
#include "tokenizer/tokenizer.hpp"

namespace finetune::tests::tokens_test {
namespace {

using namespace adapter_job;

constexpr const char* embedding = "model.embed_tokens.weight";
constexpr const char* head = "lm_head.weight";
constexpr std::size_t columns = 64;
constexpr std::int64_t first_new = 467, old_rows = 512;

/// The data hold some of the tokens.
Job token_job(const std::string& name, const Words& more) {
  Words all = {"precision.mode=32-true",
               "train.max_steps=4",
               "train.global_batch=4",
               "train.micro_batch=2",
               "optimizer.lr=2e-2",
               "checkpoint.save_steps=2",
               "optimizer.warmup_steps=0",
               "train.determinism=topology",
               "model.add_tokens=[\"and then\", \"<step>\"]",
               "model.add_special_tokens=[\"<|turn|>\"]"};
  return Job(name, with(all, more));
}

/// The same bits need as many threads a rank, whatever cores one rank alone may use.
class NewTokens : public testing::Test {
 protected:
  void SetUp() override { ::setenv("OMP_NUM_THREADS", "1", 1); }
  void TearDown() override { ::unsetenv("OMP_NUM_THREADS"); }
};

std::vector<float> row_of(const std::vector<float>& matrix, std::int64_t row) {
  const auto first = matrix.begin() + static_cast<std::ptrdiff_t>(row) * columns;
  return {first, first + columns};
}

std::vector<float> mean_of(const std::vector<float>& matrix, std::int64_t first, std::int64_t end) {
  std::vector<float> mean;
  for (std::size_t k = 0; k < columns; ++k) {
    double sum = 0;
    for (std::int64_t i = first; i < end; ++i)
      sum += matrix[static_cast<std::size_t>(i) * columns + k];
    mean.push_back(static_cast<float>(sum / static_cast<double>(end - first)));
  }
  return mean;
}

TEST_F(NewTokens, BeginWithTheMeanOfAllRowsAndLeaveTheOthers) {
  const Job job = token_job("tokens.begin", {"train.max_steps=0"});
  must(job.run(2));
  must(command(job, {"export", "output", "out"}));
  for (const char* name : {embedding, head}) {
    const auto before = tensor_in(job.model(), name), after = tensor_in(job.folder() / "out", name);
    ASSERT_EQ(after.size(), before.size()) << "unused rows are taken first";
    for (std::int64_t i = 0; i < old_rows; ++i) {
      const bool is_new = i >= first_new && i < first_new + 3;
      EXPECT_EQ(row_of(after, i), is_new ? mean_of(before, 0, first_new) : row_of(before, i)) << i;
    }
  }
  const auto tokenizer = tokenizer::Tokenizer::load(job.folder() / "out");
  EXPECT_EQ(tokenizer.vocab_size(), first_new + 3);
  EXPECT_EQ(tokenizer.id("<step>"), first_new + 1);
  using tokenizer::Encode;
  EXPECT_EQ(tokenizer.encode("and then<|turn|>", Encode::continuation),
            (std::vector<std::int32_t>{first_new, first_new + 2}));
  EXPECT_EQ(tokenizer.decode(std::vector<std::int32_t>{first_new, first_new + 2}), "and then");
}

TEST_F(NewTokens, GrowEmbeddingHeadAndConfigAndBeginWithNamedOnes) {
  std::string tokens = "model.add_tokens=[\"<0>\"";
  for (int i = 1; i < 60; ++i)
    tokens += ", \"<" + std::to_string(i) + ">\"";
  const Job job("tokens.grow", {"precision.mode=32-true", "train.max_steps=0", tokens + "]",
                                "model.new_tokens_from=[\"a\", \"b\"]"});
  must(job.run(1));
  must(command(job, {"export", "output", "out"}));
  const fs::path out = job.folder() / "out";
  EXPECT_EQ(core::read_json(out / "config.json", 1 << 20).at("vocab_size"), first_new + 60);
  const auto tokenizer = tokenizer::Tokenizer::load(job.model());
  for (const char* name : {embedding, head}) {
    const auto before = tensor_in(job.model(), name), after = tensor_in(out, name);
    ASSERT_EQ(after.size(), static_cast<std::size_t>(first_new + 60) * columns);
    const auto a = row_of(before, *tokenizer.id("a")), b = row_of(before, *tokenizer.id("b"));
    for (std::int64_t i : {first_new, first_new + 59})
      for (std::size_t k = 0; k < columns; ++k)
        EXPECT_EQ(row_of(after, i)[k], static_cast<float>((double{a[k]} + b[k]) / 2));
  }
}

TEST_F(NewTokens, HaveInputsOfLayersToo) {
  const char* of_layers = "model.embed_tokens_per_layer.weight";
  std::string tokens = "model.add_tokens=[\"<0>\"";
  for (int i = 1; i < 60; ++i)
    tokens += ", \"<" + std::to_string(i) + ">\"";
  const Job job = family_job("gemma4_e2b", "tokens.layers",
                             {"precision.mode=32-true", "train.max_steps=1", tokens + "]"});
  must(job.run(2));
  must(command(job, {"export", "output", "out"}));
  const fs::path out = job.folder() / "out";
  EXPECT_EQ(core::read_json(out / "config.json", 1 << 20).at("vocab_size_per_layer_input"),
            first_new + 60);
  const auto before = weights::ModelFiles::open(job.model()).entry(of_layers).shape;
  const auto after = weights::ModelFiles::open(out).entry(of_layers).shape;
  EXPECT_EQ(after, (std::vector<std::int64_t>{first_new + 60, before[1]}));
}

TEST_F(NewTokens, TrainToTheSameBitsOnAnyRanksAndOverRestarts) {
  const Job one = token_job("tokens.one", {}), moved = token_job("tokens.moved", {});
  must(one.run(1));
  EXPECT_EQ(moved.run(3, {"train.stop_after_steps=2"}).exit_code, 75);
  must(moved.run(2));
  EXPECT_EQ(one.exported(), moved.exported());
  const auto trained = tensor_in(one.folder() / "exported", embedding);
  EXPECT_NE(row_of(trained, first_new), row_of(trained, first_new + 1)) << "the data have one";
  const Outcome other = moved.run(1, {"model.add_tokens=[\"<other>\"]", "train.max_steps=5"});
  EXPECT_EQ(other.exit_code, 78) << other.text();
  EXPECT_EQ(count(other.err, "error: "), 1) << other.text();
}

/// Only the rows of new tokens differ from the base's.
void expect_new_rows_alone(const Job& job, const fs::path& merged, const char* name) {
  const auto base = tensor_in(job.model(), name), after = tensor_in(merged, name);
  const auto mean = mean_of(base, 0, first_new);
  for (std::int64_t i = 0; i < old_rows; ++i) {
    if (i >= first_new && i < first_new + 3) continue;
    EXPECT_EQ(row_of(after, i), row_of(base, i)) << name << ", row " << i;
  }
  EXPECT_NE(row_of(after, first_new), mean) << name;
}

TEST_F(NewTokens, AloneAreTrainedBesideAnAdapter) {
  const Words lora = {"adapter.name=lora", "adapter.target_modules=[\"q_proj\"]",
                      "optimizer.weight_decay=0.1"};
  const Job job = token_job("tokens.adapter", lora),
            moved = token_job("tokens.adapter_moved", lora);
  must(job.run(1));
  must(moved.run(2));
  EXPECT_EQ(job.exported(), moved.exported());
  must(command(job, {"export", "output", "merged", "--merge"}));
  expect_new_rows_alone(job, job.folder() / "merged", embedding);
  expect_new_rows_alone(job, job.folder() / "merged", head);

  const fs::path out = job.folder() / "exported";
  const core::Json config = core::read_json(out / "adapter_config.json", 1 << 20);
  EXPECT_EQ(config.at("trainable_token_indices"),
            core::Json::parse(R"({"embed_tokens": [467, 468, 469], "lm_head": [467, 468, 469]})"));
  EXPECT_TRUE(config.at("modules_to_save").is_null());
  const auto files = weights::ModelFiles::open({}, out, "adapter_model.safetensors");
  EXPECT_EQ(
      files.entry("base_model.model.model.embed_tokens.token_adapter.trainable_tokens_delta").shape,
      (std::vector<std::int64_t>{3, 64}));
  EXPECT_EQ(tokenizer::Tokenizer::load(out).vocab_size(), first_new + 3);
  write_logits(logits_of(job.folder() / "merged"), job);
  if (!has_peft()) GTEST_SKIP() << "no Python with torch, transformers and peft here";
  const Outcome loaded =
      run_program({"env", "python3", source_folder() / "tests/restart/check_tokens.py", "load",
                   "model", "merged", "exported", "logits.f32"},
                  job.folder());
  EXPECT_EQ(loaded.exit_code, 0) << loaded.text();
}

TEST_F(NewTokens, AreThoseOfTransformers) {
  const Job job = token_job("tokens.transformers", {"train.max_steps=0"});
  if (!has_python_with("transformers")) GTEST_SKIP() << "no Python with transformers here";
  write_file(job.model() / "special_tokens_map.json", R"({"eos_token": "<|end_of_text|>"})");
  must(job.run(1));
  must(command(job, {"export", "output", "out"}));
  write_file(job.folder() / "texts.json",
             core::Json({{"plain", {"and then", "<step>"}},
                         {"special", {"<|turn|>"}},
                         {"texts",
                          {"One, and then 4, and thentwo.", "<step> a<step>b <|turn|> c<|turn|>",
                           "<|tu rn|><ste p>", ""}}})
                 .dump());
  const Outcome same =
      run_program({"env", "python3", source_folder() / "tests/restart/check_tokens.py", "encode",
                   "out", "model", "texts.json"},
                  job.folder());
  EXPECT_EQ(same.exit_code, 0) << same.text();
}

TEST_F(NewTokens, ThatCannotBeAreOneError) {
  const Job job("tokens.bad", {"train.max_steps=0"});
  const auto expect = [&](const Words& more, int exit_code, const std::string& text) {
    const Outcome outcome = job.run(2, more);
    EXPECT_EQ(outcome.exit_code, exit_code) << outcome.text();
    EXPECT_EQ(count(outcome.err, text), 1) << outcome.text();
    EXPECT_EQ(count(outcome.err, "error: "), 1) << outcome.text();
  };
  expect({"model.add_tokens=[\"a\"]"}, 65, "has the token \"a\" already (its id is ");
  expect({"model.add_tokens=[\"<a>\", \"<a>\"]"}, 78,
         "model.add_tokens has the token \"<a>\" twice");
  expect({"model.add_tokens=[\"<a>\"]", "model.add_special_tokens=[\"<a>\"]"}, 78, "twice");
  expect({"model.add_tokens=[\"<a>\"]", "model.init=random"}, 78, "with model.init = \"random\"");
  expect({"model.add_tokens=[\"<a>\"]", "model.new_tokens_from=[\"no such\"]"}, 65,
         "has no token \"no such\"");
  expect({"model.new_tokens_from=[\"a\"]"}, 78, "but no new tokens are");
  expect({"model.add_tokens=[\"\"]"}, 78, "model.add_tokens names \"\"");
  expect({"model.add_tokens=[\"<a>\", \"\"]"}, 78, "model.add_tokens has an empty token");
  expect({"model.add_tokens=[\"<a>\"]", "adapter.name=lora",
          "adapter.target_modules=[embed_tokens,q_proj]"},
         78,
         "adapter.target_modules adapts model.embed_tokens, and model.train_new_tokens trains rows "
         "of it");
  expect({"model.add_tokens=[\"<a>\"]", "adapter.name=lora", "adapter.path=x"}, 78,
         "model.add_tokens with adapter.path");
  fs::rename(job.model() / "tokenizer.json", job.model() / "other.json");
  fs::copy_file(golden / "tokenizers/tekken/tekken.json", job.model() / "tekken.json");
  write_file(job.model() / "tokenizer_config.json", R"({"eos_token": "</s>"})");
  expect({"model.add_tokens=[\"<a>\"]"}, 65, "model.add_tokens needs a tokenizer.json");
}

}  // namespace
}  // namespace finetune::tests::tokens_test
