// SPDX-License-Identifier: Apache-2.0
// Models that say of a text which label is right, which of several are, or a number: the losses of
// transformers' ...ForSequenceClassification, on any ranks, and what it reads of exports.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

#include "restart/job.hpp"
#include "support/folders.hpp"

namespace finetune::tests::classify_test {
namespace {

namespace fs = std::filesystem;

const fs::path golden = source_folder() / "tests/golden/classify";

struct Problem {
  std::string type;
  std::string labels;
};

std::string name_of(const testing::TestParamInfo<Problem>& info) {
  return info.param.type;
}

/// Texts of several lengths, whose labels are names and numbers.
std::string samples(const std::string& type) {
  const char* words[] = {"good", "bad", "kind", "cruel", "warm", "cold"};
  std::string lines;
  for (int i = 0; i < 12; ++i) {
    std::string text = std::string("It was ") + words[i % 6];
    for (int k = 0; k < i % 5; ++k)
      text += " and long";
    const bool is_good = i % 2 == 0;
    if (type == "reward") {
      const std::string better = "Yes" + text, worse = "No" + std::string(i % 4, '.');
      lines += core::Json({{"chosen", better}, {"rejected", worse}}).dump() + "\n";
      continue;
    }
    core::Json label = is_good ? core::Json("pos") : core::Json(0);
    if (type == "regression") label = is_good ? 1.5 : -0.75;
    if (type == "multi_label_classification") {
      label = core::Json::array({label});
      if (i % 3 == 0) label = {"neg", 1};
    }
    lines += core::Json({{"text", text}, {"label", label}}).dump() + "\n";
  }
  return lines;
}

class Classify : public testing::TestWithParam<Problem> {
 protected:
  static Job job_of(const Problem& problem, const std::string& name, const Words& more = {}) {
    Job job("classify." + problem.type + "." + name,
            with({"precision.mode=32-true", "train.global_batch=12", "train.micro_batch=3",
                  "optimizer.lr=1e-2", "optimizer.schedule=constant", "checkpoint.save_steps=3",
                  "model.problem_type=" + problem.type, "model.labels=" + problem.labels},
                 more));
    std::ofstream(job.folder() / "texts.jsonl") << samples(problem.type);
    return job;
  }
  static Words data(int steps) {
    return {"data.path=texts.jsonl", "data.validation_path=texts.jsonl",
            "train.max_steps=" + std::to_string(steps)};
  }

  /// The model with the head that it begins with.
  static void write_begun(const Job& job) {
    ASSERT_EQ(job.run(1, with(data(0), {"train.output=begun"})).exit_code, 0);
    export_from(job, "begun", "with_head");
  }
  static void export_from(const Job& job, const std::string& run, const std::string& out,
                          const Words& more = {}) {
    const Outcome outcome =
        run_finetune(1, with({"export", run, out, "--dtype", "float32"}, more), job.folder());
    ASSERT_EQ(outcome.exit_code, 0) << outcome.text();
  }
  static std::vector<double> losses_of(const Job& job) {
    std::vector<double> losses;
    for (const core::Json& step : job.steps())
      losses.push_back(step.at("loss"));
    return losses;
  }
  /// Of all texts, before anything is learnt.
  static double begun_loss_of(const Job& job) {
    return job.metrics().front().at("validation_loss");
  }
  static bool has_transformers(const fs::path& folder) {
    return run_program({"env", "python3", "-c", "import transformers, torch, peft"}, folder)
               .exit_code == 0;
  }
  static void expect_near(const std::vector<double>& losses, const core::Json& wanted) {
    ASSERT_EQ(losses.size(), wanted.size());
    for (std::size_t i = 0; i < losses.size(); ++i)
      EXPECT_NEAR(losses[i], wanted[i].get<double>(), 2e-5 * std::abs(losses[i]) + 1e-6) << i;
  }
};

TEST_P(Classify, LearnsAsTransformersDoes) {
  const Problem& problem = GetParam();
  const core::Json known = core::parse_json(read_file(golden / "losses.json"), "losses.json");
  const Job job = job_of(problem, "steps");
  write_begun(job);
  const Words goes_on = with(data(5), {"model.path=with_head"});
  const Outcome outcome = job.run(2, goes_on);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.text();
  const std::map<std::string, std::string> counts = {
      {"single_label_classification", "labels: 6 neg, 6 pos"},
      {"multi_label_classification", "labels: 8 neg, 8 pos"},
      {"regression", "numbers from -0.75 to 1.5, 0.375 on average"},
      {"reward", "12 pairs of a preferred text and another one"}};
  EXPECT_EQ(count(outcome.out, counts.at(problem.type)), 2) << outcome.out;
  EXPECT_EQ(count(outcome.out, "end tokens trained"), 0) << outcome.out;
  // The head of the files is what it goes on from.
  expect_near(losses_of(job), known.at(problem.type));
  export_from(job, "output", "trained");
  const core::Json config = core::parse_json(read_file(job.folder() / "trained/config.json"), "");
  EXPECT_EQ(config.at("architectures"), core::Json({"LlamaForSequenceClassification"}));
  // Transformers has no word for rewards.
  EXPECT_EQ(config.at("problem_type"), problem.type == "reward" ? "regression" : problem.type);
  EXPECT_FALSE(config.at("pad_token_id").is_null());
  if (!has_transformers(job.folder())) return;
  const Outcome python = run_program(
      {"env", "python3", golden / "make.py", "with_head", "texts.jsonl", "full", "5", "1e-2"},
      job.folder());
  ASSERT_EQ(python.exit_code, 0) << python.text();
  expect_near(losses_of(job), core::Json::parse(python.out));
}

/// What transformers makes of the texts: a list of logits for each.
core::Json logits_of(const fs::path& folder) {
  const Outcome python =
      run_program({"env", "python3", golden / "predict.py", "trained", "lines.jsonl"}, folder);
  EXPECT_EQ(python.exit_code, 0) << python.text();
  return core::Json::parse(python.out);
}

double probability(const core::Json& logits, std::size_t label, bool is_one) {
  const auto exp = [&](const core::Json& logit) { return std::exp(logit.get<double>()); };
  double sum = is_one ? 0 : 1 + exp(logits[label]);
  for (std::size_t i = 0; is_one && i < logits.size(); ++i)
    sum += exp(logits[i]);
  return exp(logits[label]) / sum;
}

TEST_P(Classify, SaysLabelsOfTexts) {
  const Problem& problem = GetParam();
  const Job job = job_of(problem, "said");
  ASSERT_EQ(job.run(1, data(4)).exit_code, 0);
  export_from(job, "output", "trained");
  std::string lines;
  for (int i = 0; i < 9; ++i)
    lines +=
        core::Json({{"id", i}, {"text", "It was good" + std::string(i * 3, '!')}}).dump() + "\n";
  write_file(job.folder() / "lines.jsonl", lines);
  const auto said = [&](int ranks, const std::string& out) {
    const Outcome outcome = run_finetune(ranks,
                                         {"generate", "trained", "--file", "lines.jsonl", "-o", out,
                                          "--dtype", "fp32", "--batch", "2"},
                                         job.folder());
    EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
    return read_file(job.folder() / out);
  };
  const std::string one = said(1, "one.jsonl");
  EXPECT_EQ(said(3, "three.jsonl"), one);
  EXPECT_EQ(said(1, "one.jsonl"), one) << "nothing was left to say";
  ASSERT_EQ(count(one, "\n"), 9);
  std::vector<core::Json> answers;
  std::istringstream in(one);
  for (std::string line; std::getline(in, line);)
    answers.push_back(core::Json::parse(line));
  const bool is_one = problem.type == "single_label_classification";
  const bool is_number = problem.type == "regression" || problem.type == "reward";
  for (std::size_t i = 0; i < answers.size(); ++i) {
    EXPECT_EQ(answers[i].at("id"), i);
    if (is_number) continue;
    const double neg = answers[i].at("probabilities").at("neg");
    const double pos = answers[i].at("probabilities").at("pos");
    EXPECT_GT(neg, 0);
    if (is_one) {
      EXPECT_NEAR(neg + pos, 1, 2e-6);
      EXPECT_EQ(answers[i].at("label"), neg > pos ? "neg" : "pos");
    } else {
      EXPECT_EQ(answers[i].at("labels").size(), (neg > 0.5) + (pos > 0.5)) << answers[i];
    }
  }
  const Outcome alone =
      run_finetune(1, {"generate", "trained", "It was good", "--dtype", "fp32"}, job.folder());
  core::Json first = answers.front();
  first.erase("id");
  first.erase("prompt_hash");
  EXPECT_EQ(core::Json::parse(alone.out.substr(alone.out.find('{'))), first) << alone.text();
  if (!has_transformers(job.folder())) return;
  const core::Json logits = logits_of(job.folder());
  for (std::size_t i = 0; i < answers.size(); ++i) {
    if (is_number) {
      EXPECT_NEAR(answers[i].at("value").get<double>(), logits[i][0].get<double>(), 2e-5);
      continue;
    }
    EXPECT_NEAR(answers[i].at("probabilities").at("pos").get<double>(),
                probability(logits[i], 1, is_one), 1e-5);
  }
}

TEST_P(Classify, IsTheSameOnOtherRanksAndAfterAStop) {
  const Problem& problem = GetParam();
  const Words same = {"train.determinism=topology"};
  const Job one = job_of(problem, "one", same), two = job_of(problem, "two", same);
  ASSERT_EQ(one.run(1, data(6)).exit_code, 0);
  ASSERT_EQ(two.run(2, with(data(6), {"train.stop_after_steps=3"})).exit_code, 75);
  ASSERT_EQ(two.run(1, data(6)).exit_code, 0);
  EXPECT_TRUE(one.exported() == two.exported());
  const Job context = job_of(problem, "context");
  const Outcome shared = context.run(2, with(data(6), {"parallel.cp=2"}));
  const auto losses = losses_of(one);
  if (problem.type == "reward") {
    EXPECT_TRUE(shared.ended_with(78)) << shared.text();
    EXPECT_EQ(count(shared.text(), "compared on one rank"), 1) << shared.text();
  } else {
    ASSERT_EQ(shared.exit_code, 0) << shared.text();
    const auto of_context = losses_of(context);
    for (std::size_t i = 0; i < losses.size(); ++i)
      EXPECT_NEAR(losses[i], of_context[i], 1e-4 * losses[i]) << i;
  }
  // Packed texts do not see each other.
  const Job packed = job_of(problem, "packed", {"data.packing=true"});
  ASSERT_EQ(packed.run(1, with(data(2), {"train.global_batch=2", "train.micro_batch=1"})).exit_code,
            0);
  EXPECT_NEAR(begun_loss_of(packed), begun_loss_of(one), 1e-5);
}

TEST_P(Classify, HasAdaptersForPeft) {
  const Problem& problem = GetParam();
  const Job job = job_of(problem, "lora", {"adapter.name=lora"});
  const Outcome outcome = job.run(2, data(4));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.text();
  export_from(job, "output", "adapter");
  const core::Json config =
      core::parse_json(read_file(job.folder() / "adapter/adapter_config.json"), "");
  EXPECT_EQ(config.at("task_type"), "SEQ_CLS");
  EXPECT_EQ(config.at("modules_to_save"), core::Json({"score"}));
  // What is merged says the same of the texts.
  export_from(job, "output", "merged", {"--merge"});
  const Outcome merged =
      job.run(1, with(data(0), {"model.path=merged", "adapter.name=none", "train.output=again"}));
  ASSERT_EQ(merged.exit_code, 0) << merged.text();
  const auto validated = [&](const std::string& run) {
    double loss = 0;
    std::ifstream file(job.folder() / run / "metrics.jsonl");
    for (std::string line; std::getline(file, line);)
      if (const core::Json row = core::Json::parse(line); row.contains("validation_loss"))
        loss = row.at("validation_loss");
    return loss;
  };
  EXPECT_NEAR(validated("again"), validated("output"), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Of, Classify,
                         testing::Values(Problem{"single_label_classification", R"(["neg","pos"])"},
                                         Problem{"multi_label_classification", R"(["neg","pos"])"},
                                         Problem{"regression", "[]"}, Problem{"reward", "[]"}),
                         name_of);

TEST(ClassifyRefuses, WhatDoesNotBelongTogether) {
  const Job job("classify.refused", {"train.max_steps=1", "data.path=texts.jsonl",
                                     "model.problem_type=single_label_classification",
                                     R"(model.labels=["neg","pos"])"});
  std::ofstream(job.folder() / "texts.jsonl") << samples("single_label_classification");
  const auto refused = [&](int code, const std::string& part, const Words& more) {
    const Outcome outcome = job.run(2, more);
    EXPECT_TRUE(outcome.ended_with(code)) << outcome.text();
    EXPECT_EQ(count(outcome.text(), part), 1) << outcome.text();
  };
  refused(78, "has fewer than two names", {R"(model.labels=["neg"])"});
  refused(78, "has a name twice", {R"(model.labels=["neg","neg"])"});
  refused(78, "text that is continued has no labels", {"model.problem_type=causal_lm"});
  refused(78, "has several names", {"model.problem_type=regression"});
  refused(78, "Set data.format = \"preference\".",
          {"model.problem_type=reward", "model.labels=[]", "data.format=labelled"});
  refused(65, "field \"chosen\" is missing", {"model.problem_type=reward", "model.labels=[]"});
  refused(78, "Set data.format = \"labelled\".", {"data.format=alpaca"});
  refused(78, "the few rows of its head", {"parallel.tp=2"});
  refused(65, "texts.jsonl:1: has the label \"pos\"", {R"(model.labels=["a","b"])"});
  refused(65, "they are a list", {"model.problem_type=multi_label_classification"});
  refused(65, "field \"tag\" is missing", {"data.label_column=tag"});
  EXPECT_FALSE(fs::exists(job.output() / "step-0000000001"));
  // What was learnt continues no text.
  ASSERT_EQ(job.run(1).exit_code, 0);
  const auto finetune = [&](const Words& words) { return run_finetune(1, words, job.folder()); };
  ASSERT_EQ(finetune({"export", "output", "model_with_labels"}).exit_code, 0);
  const Outcome evaluated =
      finetune({"evaluate", "model_with_labels", "--tasks",
                source_folder() / "tests/golden/tasks/texts.toml", "-o", "evaluated"});
  EXPECT_EQ(evaluated.exit_code, 65) << evaluated.text();
  EXPECT_EQ(count(evaluated.text(), "it continues no text"), 1) << evaluated.text();
  EXPECT_EQ(finetune({"generate", "model_with_labels", "--chat"}).exit_code, 64);
  write_file(job.folder() / "lines.jsonl", "{\"prompt\": \"It was\"}\n");
  const Outcome lines =
      finetune({"generate", "model_with_labels", "--file", "lines.jsonl", "-o", "said.jsonl"});
  EXPECT_EQ(lines.exit_code, 65) << lines.text();
  EXPECT_EQ(count(lines.text(), "neither \"text\" nor \"messages\""), 1) << lines.text();
  const Outcome gguf = finetune({"export", "model_with_labels", "a.gguf"});
  EXPECT_EQ(gguf.exit_code, 65) << gguf.text();
  const Outcome causal = job.run(1, {"model.path=model_with_labels", "model.labels=[]",
                                     "model.problem_type=causal_lm", "train.output=other"});
  EXPECT_EQ(causal.exit_code, 78) << causal.text();
  EXPECT_EQ(count(causal.text(), "Set model.problem_type = \"single_label_classification\""), 1)
      << causal.text();
}

}  // namespace
}  // namespace finetune::tests::classify_test
