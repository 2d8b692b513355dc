// SPDX-License-Identifier: Apache-2.0
// finetune evaluate: the numbers of lm-evaluation-harness, on any number of ranks, also when it is
// killed on the way.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>

#include "core/file.hpp"
#include "core/file_lock.hpp"
#include "core/json.hpp"
#include "support/files.hpp"
#include "support/folders.hpp"
#include "support/residence.hpp"

namespace finetune::tests::evaluate_test {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

fs::path tasks(const std::string& name) {
  return source_folder() / "tests/golden/tasks" / name;
}

std::vector<core::Json> samples_of(const fs::path& folder, const std::string& task) {
  std::vector<core::Json> samples;
  std::ifstream file(folder / "samples.jsonl");
  for (std::string line; std::getline(file, line);)
    if (core::Json sample = core::Json::parse(line); sample.at("task") == task)
      samples.push_back(std::move(sample));
  return samples;
}

/// The same bits need as many threads a rank.
class Evaluate : public testing::Test {
 protected:
  void SetUp() override { ::setenv("OMP_NUM_THREADS", "1", 1); }
  void TearDown() override { ::unsetenv("OMP_NUM_THREADS"); }

  static Words words(const fs::path& output, const Words& more = {}) {
    Words all = {"evaluate",
                 source_folder() / "inputs/quickstart/model",
                 "--tasks",
                 tasks("choices.toml"),
                 tasks("texts.toml"),
                 tasks("questions.toml"),
                 "--dtype",
                 "fp32",
                 "-o",
                 output};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
};

TEST_F(Evaluate, HasTheNumbersOfLmEvaluationHarness) {
  const fs::path folder = empty_folder("evaluate.numbers");
  const Outcome outcome = run_finetune(2, words("out"), folder);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.text();
  const core::Json expected = core::Json::parse(file_text(tasks("lm_eval.json")));
  const auto choices = samples_of(folder / "out", "choices");
  const core::Json& of_choices = expected.at("choices").at("responses");
  ASSERT_EQ(choices.size(), of_choices.size());
  for (std::size_t i = 0; i < choices.size(); ++i)
    for (std::size_t c = 0; c < of_choices[i].size(); ++c)
      EXPECT_NEAR(choices[i].at("log_likelihoods")[c].get<double>(),
                  of_choices[i][c][0].get<double>(), 1e-4)
          << i;
  const auto texts = samples_of(folder / "out", "texts");
  const core::Json& of_texts = expected.at("texts").at("responses");
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const core::Json& value = of_texts[i].is_array() ? of_texts[i][0] : of_texts[i];
    EXPECT_NEAR(texts[i].at("log_likelihood").get<double>(), value.get<double>(),
                1e-6 * std::abs(value.get<double>()) + 1e-4);
  }
  const auto questions = samples_of(folder / "out", "questions");
  for (std::size_t i = 0; i < questions.size(); ++i)
    EXPECT_EQ(questions[i].at("answers")[0], expected.at("questions").at("responses")[i][0][0]);
  const core::Json results = core::Json::parse(file_text(folder / "out/results.json"));
  const auto value_of = [&](const std::string& metric) {
    for (const core::Json& figure : results.at("figures"))
      if (figure.at("metric") == metric) return figure.at("value").get<double>();
    return std::nan("");
  };
  const core::Json& metrics = expected.at("choices").at("metrics");
  EXPECT_EQ(value_of("accuracy"), metrics.at("acc").get<double>());
  EXPECT_EQ(value_of("accuracy_normalised"), metrics.at("acc_norm").get<double>());
  for (const char* metric : {"word_perplexity", "byte_perplexity", "bits_per_byte"}) {
    const double wanted = expected.at("texts").at("metrics").at(metric).get<double>();
    EXPECT_NEAR(value_of(metric), wanted, 1e-5 * wanted) << metric;
  }
}

TEST_F(Evaluate, IsTheSameOnAnyRanksAndAfterAKill) {
  const fs::path folder = empty_folder("evaluate.ranks");
  const Outcome whole = run_finetune(1, words("whole"), folder);
  ASSERT_EQ(whole.exit_code, 0) << whole.text();
  const Outcome on_three = run_finetune(3, words("three"), folder);
  ASSERT_EQ(on_three.exit_code, 0) << on_three.text();
  EXPECT_TRUE(file_text(folder / "three/results.json") == file_text(folder / "whole/results.json"));
  EXPECT_TRUE(file_text(folder / "three/samples.jsonl") ==
              file_text(folder / "whole/samples.jsonl"));
  // Killed as soon as something is written down, and then cut in the middle of a line.
  const fs::path progress = folder / "killed/progress.jsonl";
  {
    Process process(finetune_on(2, words("killed", {"--batch-tokens", "64"})), folder);
    while (std::ranges::count(file_text(progress), '\n') < 5 && process.read_for(5)) {
    }
    process.kill();
  }
  std::string lines = file_text(progress);
  ASSERT_FALSE(lines.empty()) << "it was over before it could be killed";
  std::ofstream(progress) << lines.substr(0, lines.size() - 3);
  const Outcome rest = run_finetune(1, words("killed", {"--batch-tokens", "64"}), folder);
  ASSERT_EQ(rest.exit_code, 0) << rest.text();
  EXPECT_NE(rest.text().find("goes on: "), std::string::npos) << rest.text();
  EXPECT_FALSE(fs::exists(progress));
  const Outcome again = run_finetune(1, words("small", {"--batch-tokens", "64"}), folder);
  ASSERT_EQ(again.exit_code, 0) << again.text();
  EXPECT_TRUE(file_text(folder / "killed/samples.jsonl") ==
              file_text(folder / "small/samples.jsonl"));
}

TEST_F(Evaluate, SaysOnceWhatIsWrong) {
  const fs::path folder = empty_folder("evaluate.wrong");
  const auto refused = [&](int ranks, const Words& arguments, int code, const std::string& part) {
    const Outcome outcome = run_finetune(ranks, arguments, folder);
    EXPECT_TRUE(outcome.ended_with(code)) << outcome.text();
    EXPECT_EQ(count(outcome.text(), part), 1) << outcome.text();
  };
  const std::string model = source_folder() / "inputs/quickstart/model";
  refused(2, {"evaluate", model, "--tasks", "none.toml", "-o", "out"}, 65, "none.toml");
  refused(2, {"evaluate", model, model, "--tasks", tasks("texts.toml"), "-o", "out"}, 64,
          "is named twice");
  refused(1, {"evaluate", "none", "--tasks", tasks("texts.toml"), "-o", "out"}, 65, "none");
  refused(1, {"evaluate", model, "--tasks", tasks("texts.toml")}, 64, "--output is required");
  EXPECT_FALSE(fs::exists(folder / "out/results.json"));
  const Outcome none =
      run_finetune(2, {"evaluate", "none", "--tasks", tasks("texts.toml"), "-o", "out"}, folder);
  EXPECT_EQ(count(none.text(), "model.path"), 0) << none.text();
  fs::create_directory(folder / "run");
  std::ofstream(folder / "run/input.resolved.toml") << "";
  refused(2, {"evaluate", model, "--adapter", "run", "--tasks", tasks("texts.toml"), "-o", "out"},
          65, "finetune evaluate " + model + " run");
  // A task that talks, and a model without a chat template.
  std::ofstream(folder / "talk.toml") << std::regex_replace(
      file_text(tasks("questions.toml")), std::regex("\\[task\\]"), "[task]\nchat = true");
  fs::copy_file(tasks("questions.jsonl"), folder / "questions.jsonl");
  refused(2, {"evaluate", model, "--tasks", "talk.toml", "-o", "out"}, 65,
          "the model has no chat template");
}

TEST_F(Evaluate, IsAloneInItsFolder) {
  const fs::path folder = empty_folder("evaluate.locked");
  fs::create_directory(folder / "out");
  const core::File other(folder / "out/.evaluate.lock", core::File::Mode::create_or_write);
  if (core::try_lock(other.descriptor(), core::Lock::exclusive) != core::Locked::yes)
    GTEST_SKIP() << "no locks here";
  const Outcome outcome = run_finetune(2, words("out"), folder);
  EXPECT_TRUE(outcome.ended_with(73)) << outcome.text();
  EXPECT_EQ(count(outcome.text(), "is in use by another finetune"), 1) << outcome.text();
  EXPECT_FALSE(fs::exists(folder / "out/progress.jsonl"));
}

TEST_F(Evaluate, BeginsAnewWithAnotherModel) {
  const fs::path folder = empty_folder("evaluate.other_model");
  fs::copy(source_folder() / "inputs/quickstart/model", folder / "model",
           fs::copy_options::recursive);
  Words start = words("out", {"--batch-tokens", "64"});
  start[1] = "model";
  const fs::path progress = folder / "out/progress.jsonl";
  {
    Process process(finetune_on(1, start), folder);
    while (std::ranges::count(file_text(progress), '\n') < 5 && process.read_for(5)) {
    }
    process.kill();
  }
  ASSERT_FALSE(file_text(progress).empty()) << "it was over before it could be killed";
  const fs::path weights = folder / "model/model.safetensors";
  fs::permissions(weights, fs::perms::owner_write, fs::perm_options::add);
  fs::last_write_time(weights, fs::last_write_time(weights) + std::chrono::seconds(5));
  const Outcome rest = run_finetune(1, start, folder);
  ASSERT_EQ(rest.exit_code, 0) << rest.text();
  EXPECT_EQ(count(rest.text(), "goes on: "), 0) << rest.text();
}

TEST_F(Evaluate, TellsRunsOfOneNameApart) {
  const fs::path folder = empty_folder("evaluate.names");
  const auto train = [&](const std::string& output, const std::string& rate) {
    const fs::path quickstart = source_folder() / "inputs/quickstart";
    std::ofstream(folder / "deck.toml")
        << "[model]\npath = \"" << (quickstart / "model").string() << "\"\n"
        << "[data]\npath = \"" << (quickstart / "train.json").string() << "\"\n"
        << "format = \"alpaca\"\nmax_seq_length = 256\n"
        << "[precision]\nmode = \"32-true\"\n[optimizer]\nlr = " << rate << "\n"
        << "[train]\noutput = \"" << output << "\"\n"
        << "max_steps = 2\nglobal_batch = 8\nmicro_batch = 2\n";
    const Outcome outcome = run_finetune(1, {"deck.toml"}, folder);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  };
  fs::create_directories(folder / "a");
  fs::create_directories(folder / "b");
  train("a/run", "1e-3");
  train("b/run", "1e-2");
  const Outcome both = run_finetune(2,
                                    {"evaluate", "a/run", "b/run/", "--tasks", tasks("texts.toml"),
                                     "--dtype", "fp32", "-o", "out"},
                                    folder);
  ASSERT_EQ(both.exit_code, 0) << both.text();
  const core::Json results = core::Json::parse(file_text(folder / "out/results.json"));
  std::map<std::string, double> values;
  for (const core::Json& figure : results.at("figures"))
    if (figure.at("metric") == "word_perplexity")
      values[figure.at("model").get<std::string>()] = figure.at("value").get<double>();
  ASSERT_EQ(values.size(), 2u) << results;
  EXPECT_TRUE(values.contains("a/run/step-0000000002")) << results;
  EXPECT_TRUE(values.contains("b/run/step-0000000002")) << results;
  EXPECT_NE(values.begin()->second, values.rbegin()->second) << "each has its own numbers";
  EXPECT_FALSE(fs::exists(folder / "out/exports"));
}

}  // namespace
}  // namespace finetune::tests::evaluate_test
