// SPDX-License-Identifier: Apache-2.0
// [evaluate]: a run asks its model what finetune evaluate asks, on any mesh, goes on where it was
// stopped, keeps the best by it, and ends early.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <sstream>

#include "core/json.hpp"
#include "support/files.hpp"
#include "support/folders.hpp"
#include "support/residence.hpp"

namespace finetune::tests::tasks_test {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

/// Of one model: all that is measured, by "TASK/METRIC".
core::Json values_of(const fs::path& folder, const std::string& model) {
  core::Json values = core::Json::object();
  const core::Json results = core::Json::parse(file_text(folder / "results.json"));
  for (const core::Json& figure : results.at("figures"))
    if (figure.at("model") == model)
      values[figure.at("task").get<std::string>() + "/" + figure.at("metric").get<std::string>()] =
          figure.at("value");
  return values;
}

/// The same bits need as many threads a rank.
class Tasks : public testing::Test {
 protected:
  void SetUp() override { ::setenv("OMP_NUM_THREADS", "1", 1); }
  void TearDown() override {
    ::unsetenv("OMP_NUM_THREADS");
    ::unsetenv("FINETUNE_FAULT");
  }

  static fs::path quickstart(const char* name) {
    return source_folder() / "inputs/quickstart" / name;
  }
  static std::string task(const char* name) {
    return (source_folder() / "tests/golden/tasks" / name).string();
  }

  static void write_deck(const fs::path& folder) {
    std::ofstream(folder / "deck.toml")
        << "[model]\npath = \"" << quickstart("model").string() << "\"\n"
        << "[data]\npath = \"" << quickstart("train.json").string() << "\"\n"
        << "validation_path = \"" << quickstart("held_out.json").string() << "\"\n"
        << "format = \"alpaca\"\nmax_seq_length = 256\n"
        << "[precision]\nmode = \"32-true\"\n"
        << "[optimizer]\nlr = 1e-3\n"
        << "[train]\noutput = \"run\"\nmax_steps = 6\nglobal_batch = 8\nmicro_batch = 2\n"
        << "[checkpoint]\nsave_steps = 2\nbest_by = \"choices/true_mass\"\n"
        << "[evaluate]\nsteps = 2\ntasks = [\"choices.toml\", \"" << task("questions.toml")
        << "\", \"" << task("texts.toml") << "\"]\n";
    // Beside the deck, and of a measure that every step changes.
    std::string choices = file_text(task("choices.toml"));
    const std::string metrics = "metrics = [";
    choices.insert(choices.find(metrics) + metrics.size(), "\"true_mass\", ");
    std::ofstream(folder / "choices.toml") << choices;
    fs::copy_file(task("choices.jsonl"), folder / "choices.jsonl");
  }

  static Outcome train(const fs::path& folder, int ranks, const std::string& output,
                       const Words& more = {}) {
    Words words = {"deck.toml", "train.output=" + output};
    words.insert(words.end(), more.begin(), more.end());
    return run_finetune(ranks, words, folder);
  }

  static fs::path step(const fs::path& output, int step) {
    std::string number = std::to_string(step);
    return output / "evaluations" / ("step-" + std::string(10 - number.size(), '0') + number);
  }
};

TEST_F(Tasks, AskWhatTheCommandAsks) {
  const fs::path folder = empty_folder("tasks.command");
  write_deck(folder);
  const Outcome run = train(folder, 2, "run");
  ASSERT_EQ(run.exit_code, 0) << run.text();
  ASSERT_EQ(run_finetune(1, {"export", "--dtype", "float32", "run", "model"}, folder).exit_code, 0);
  const Outcome command =
      run_finetune(1,
                   {"evaluate", quickstart("model"), "model", "--tasks", "choices.toml",
                    task("questions.toml"), task("texts.toml"), "--dtype", "fp32", "-o", "by"},
                   folder);
  ASSERT_EQ(command.exit_code, 0) << command.text();
  const core::Json before = values_of(folder / "by", quickstart("model").string());
  const core::Json after = values_of(folder / "by", "model");
  ASSERT_EQ(before.size(), 10u) << before;
  EXPECT_EQ(values_of(step(folder / "run", 0), "step 0"), before);
  // What training ended with, beside what it began with.
  EXPECT_EQ(values_of(step(folder / "run", 6), "step 6"), after);
  EXPECT_EQ(values_of(step(folder / "run", 6), "step 0"), before);
  EXPECT_NE(before, after);
  int rows = 0;
  std::ifstream metrics(folder / "run/metrics.jsonl");
  for (std::string line; std::getline(metrics, line);) {
    const core::Json row = core::Json::parse(line);
    if (!row.contains("evaluation")) continue;
    const int of = row.at("step").get<int>();
    EXPECT_EQ(of, 2 * rows++);
    const core::Json values = values_of(step(folder / "run", of), "step " + std::to_string(of));
    EXPECT_EQ(row.at("evaluation").size(), values.size());
    for (const core::Json& one : row.at("evaluation"))
      EXPECT_EQ(one.at("value"), values.at(one.at("name").get<std::string>()));
  }
  EXPECT_EQ(rows, 4);
}

TEST_F(Tasks, AreAskedByEpochs) {
  const fs::path folder = empty_folder("tasks.epochs");
  write_deck(folder);
  // Two steps of 8 sequences each: the samples of the quickstart are no multiple of these.
  const std::size_t samples = core::Json::parse(file_text(quickstart("train.json"))).size();
  std::ostringstream epochs;
  epochs << "evaluate.epochs=" << std::setprecision(17) << 16.0 / static_cast<double>(samples);
  const Outcome run =
      train(folder, 2, "run", {"train.max_steps=5", "evaluate.steps=0", epochs.str()});
  ASSERT_EQ(run.exit_code, 0) << run.text();
  std::vector<int> asked;
  std::ifstream metrics(folder / "run/metrics.jsonl");
  for (std::string line; std::getline(metrics, line);) {
    const core::Json row = core::Json::parse(line);
    if (row.contains("evaluation")) asked.push_back(row.at("step").get<int>());
  }
  EXPECT_EQ(asked, (std::vector<int>{0, 2, 4, 5}));
}

TEST_F(Tasks, OfADeckAreAskedOfItsModelAndItsRun) {
  const fs::path folder = empty_folder("tasks.deck");
  write_deck(folder);
  const Words quick = {"train.max_steps=2", "evaluate.steps=0"};
  ASSERT_EQ(train(folder, 1, "run", quick).exit_code, 0);
  Words adapted = quick;
  adapted.emplace_back("adapter.name=lora");
  ASSERT_EQ(train(folder, 1, "adapted", adapted).exit_code, 0);
  const Outcome outcome =
      run_finetune(2, {"evaluate", "deck.toml", "adapted", "--dtype", "fp32", "-o", "by"}, folder);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.text();
  EXPECT_EQ(values_of(folder / "by", "model"), values_of(step(folder / "run", 0), "step 0"));
  const core::Json wanted = values_of(step(folder / "adapted", 2), "step 2");
  const core::Json of_adapter = values_of(folder / "by", "adapted-step-0000000002");
  ASSERT_EQ(of_adapter.size(), wanted.size()) << outcome.text();
  for (const auto& [name, value] : wanted.items())
    EXPECT_NEAR(of_adapter.at(name).get<double>(), value.get<double>(),
                1e-5 * std::abs(value.get<double>()))
        << name;
  EXPECT_EQ(values_of(folder / "by", "run-step-0000000002").size(), 10u);
  EXPECT_FALSE(fs::exists(folder / "by/exports"));
  // What lies there of others stays.
  fs::create_directories(folder / "kept/exports/mine");
  const Outcome kept =
      run_finetune(1, {"evaluate", "adapted", "--tasks", "choices.toml", "-o", "kept"}, folder);
  ASSERT_EQ(kept.exit_code, 0) << kept.text();
  EXPECT_TRUE(fs::exists(folder / "kept/exports/mine"));
  EXPECT_FALSE(fs::exists(folder / "kept/exports/adapted-step-0000000002"));
  const Outcome none = run_finetune(2, {"evaluate", quickstart("model"), "-o", "none"}, folder);
  EXPECT_TRUE(none.ended_with(64)) << none.text();
  EXPECT_EQ(count(none.text(), "names no task"), 1) << none.text();
}

TEST_F(Tasks, TalkAsTheRunWasTrainedTo) {
  const fs::path folder = empty_folder("tasks.kwargs");
  write_deck(folder);
  fs::copy(quickstart("model"), folder / "model");
  std::ofstream(folder / "model/chat_template.jinja")
      << "{% for m in messages %}{{ (mood or 'glad') + ': ' + m.content }}"
         "{{ eos_token if m.role == 'assistant' }}{% endfor %}";
  const std::string choices = file_text(folder / "choices.toml");
  std::ofstream(folder / "choices.toml") << "[task]\nchat = true" << choices.substr(6);
  const Words talks = {"model.path=model",
                       "data.template=model",
                       "train.max_steps=1",
                       "evaluate.steps=0",
                       "evaluate.tasks=[\"choices.toml\"]",
                       "checkpoint.save_steps=1"};
  const auto run = [&](const char* output, const Words& more) {
    Words all = talks;
    all.insert(all.end(), more.begin(), more.end());
    const Outcome outcome = train(folder, 1, output, all);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
    return values_of(step(folder / output, 0), "step 0");
  };
  const std::string calm = "data.template_kwargs={ mood = \"calm\" }";
  const core::Json plain = run("plain", {});
  ASSERT_GT(plain.size(), 0u);
  const core::Json whole = run("whole", {calm});
  EXPECT_NE(whole, plain);
  EXPECT_EQ(run("adapted", {calm, "adapter.name=lora"}), whole);
  ASSERT_EQ(run_finetune(1, {"export", "adapted", "adapter"}, folder).exit_code, 0);
  const auto asked = [&](const Words& of, const char* output) {
    Words all = {"evaluate"};
    all.insert(all.end(), of.begin(), of.end());
    all.insert(all.end(), {"--tasks", "choices.toml", "--dtype", "fp32", "-o", output});
    const Outcome outcome = run_finetune(1, all, folder);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  };
  ASSERT_EQ(run_finetune(1, {"export", "--dtype", "float32", "whole", "out"}, folder).exit_code, 0);
  asked({"out"}, "of_run");
  EXPECT_EQ(values_of(folder / "of_run", "out"), values_of(step(folder / "whole", 1), "step 1"));
  asked({"model", "--adapter", "adapter"}, "of_adapter");
  EXPECT_EQ(values_of(folder / "of_adapter", "model"), plain);
  const core::Json of_adapter = values_of(folder / "of_adapter", "adapter");
  const core::Json wanted = values_of(step(folder / "adapted", 1), "step 1");
  ASSERT_EQ(of_adapter.size(), wanted.size());
  for (const auto& [name, value] : wanted.items())
    EXPECT_NEAR(of_adapter.at(name).get<double>(), value.get<double>(),
                1e-5 * std::abs(value.get<double>()))
        << name;
}

TEST_F(Tasks, AskTheSameOnEveryMesh) {
  const fs::path folder = empty_folder("tasks.meshes");
  write_deck(folder);
  const Outcome alone = train(folder, 1, "alone", {"train.max_steps=1"});
  ASSERT_EQ(alone.exit_code, 0) << alone.text();
  const core::Json expected = values_of(step(folder / "alone", 0), "step 0");
  const std::pair<int, Words> meshes[] = {{2, {"parallel.cp=2"}},
                                          {2, {"parallel.tp=2"}},
                                          {2, {"parallel.sharding=NO_SHARD"}},
                                          {4, {"parallel.cp=2", "parallel.dp_replicate=2"}},
                                          {4, {"parallel.tp=2", "parallel.dp_shard=2"}}};
  for (const auto& [ranks, mesh] : meshes) {
    const std::string name = "r" + std::to_string(ranks) + "." + mesh.front();
    Words settings = mesh;
    settings.push_back("train.max_steps=1");
    const Outcome outcome = train(folder, ranks, name, settings);
    ASSERT_EQ(outcome.exit_code, 0) << name << outcome.text();
    const core::Json values = values_of(step(folder / name, 0), "step 0");
    for (const auto& [measure, value] : expected.items())
      EXPECT_NEAR(values.at(measure).get<double>(), value.get<double>(),
                  1e-5 * std::abs(value.get<double>()))
          << name << " " << measure;
  }
}

// At the beginning, in training and after it: what was found out is not asked again, and the whole
// ends with the bits of a run that nothing happened to.
TEST_F(Tasks, GoOnWhereTheyWereStopped) {
  const fs::path folder = empty_folder("tasks.stopped");
  write_deck(folder);
  const Words small = {"evaluate.batch_tokens=64"};
  const Outcome whole = train(folder, 2, "whole", small);
  ASSERT_EQ(whole.exit_code, 0) << whole.text();
  Outcome outcome;
  // The passes of an evaluation, counted from each start's first one.
  const std::pair<const char*, int> stops[] = {{"evaluate.pass:1:3:usr1", 76},
                                               {"evaluate.pass:1:3:kill", 137},
                                               {"evaluate.pass:0:90:usr1", 75}};
  for (const auto& [fault, code] : stops) {
    ::setenv("FINETUNE_FAULT", fault, 1);
    outcome = train(folder, 2, "stopped", small);
    EXPECT_TRUE(outcome.ended_with(code)) << fault << outcome.text();
  }
  ::unsetenv("FINETUNE_FAULT");
  outcome = train(folder, 2, "stopped", small);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.text();
  EXPECT_NE(outcome.text().find("goes on: "), std::string::npos) << outcome.text();
  for (const int at : {0, 2, 4, 6}) {
    EXPECT_TRUE(file_text(step(folder / "stopped", at) / "samples.jsonl") ==
                file_text(step(folder / "whole", at) / "samples.jsonl"))
        << at;
    EXPECT_TRUE(file_text(step(folder / "stopped", at) / "results.json") ==
                file_text(step(folder / "whole", at) / "results.json"))
        << at;
  }
  // In the last one the run is done but for what is asked.
  ::setenv("FINETUNE_FAULT", "evaluate.pass:0:40:usr1", 1);
  const Outcome last = train(folder, 2, "last",
                             {"evaluate.batch_tokens=64", "evaluate.steps=0", "train.max_steps=1"});
  ASSERT_EQ(last.exit_code, 75) << last.text();
  ASSERT_NE(last.text().find("stopped after step 1 of 1"), std::string::npos) << last.text();
  ::unsetenv("FINETUNE_FAULT");
  const Outcome rest = train(folder, 2, "last",
                             {"evaluate.batch_tokens=64", "evaluate.steps=0", "train.max_steps=1"});
  ASSERT_EQ(rest.exit_code, 0) << rest.text();
  EXPECT_FALSE(fs::exists(step(folder / "last", 1) / "progress.jsonl"));
  EXPECT_EQ(run_finetune(1, {"watch", "--once", "last"}, folder).exit_code, 0);
}

TEST_F(Tasks, SayWhichCheckpointIsBestAndWhenToEnd) {
  const fs::path folder = empty_folder("tasks.best");
  write_deck(folder);
  // Nothing is better by so much: the second measurement is the last.
  const Words impatient = {"train.early_stopping_patience=1", "train.early_stopping_threshold=100",
                           "checkpoint.keep_best=1", "checkpoint.save_total_limit=1"};
  const Outcome run = train(folder, 2, "run", impatient);
  ASSERT_EQ(run.exit_code, 0) << run.text();
  EXPECT_EQ(count(run.text(), "stopped early after step 4 of 6: choices/true_mass"), 1)
      << run.text();
  EXPECT_FALSE(fs::exists(step(folder / "run", 6)));
  const Outcome again = train(folder, 2, "run", impatient);
  EXPECT_EQ(again.exit_code, 0) << again.text();
  EXPECT_EQ(count(again.text(), "nothing left to do: stopped early after step 4"), 1)
      << again.text();
  const double second = values_of(step(folder / "run", 2), "step 2").at("choices/true_mass");
  const double fourth = values_of(step(folder / "run", 4), "step 4").at("choices/true_mass");
  const Outcome best = run_finetune(1, {"export", "--best", "run", "model"}, folder);
  ASSERT_EQ(best.exit_code, 0) << best.text();
  EXPECT_NE(best.text().find(second > fourth ? "step-0000000002" : "step-0000000004"),
            std::string::npos)
      << best.text();
  EXPECT_EQ(fs::exists(folder / "run/step-0000000002"), second > fourth);
  const Outcome watched = run_finetune(1, {"watch", "--once", "run"}, folder);
  EXPECT_EQ(watched.exit_code, 0) << watched.text();
  // With more patience it goes on.
  const Outcome longer = train(folder, 2, "run", {"train.early_stopping_patience=9"});
  EXPECT_EQ(longer.exit_code, 0) << longer.text();
  EXPECT_TRUE(fs::exists(step(folder / "run", 6) / "results.json"));
}

TEST_F(Tasks, OfADeckThatMeasuresNothingAreRefused) {
  const fs::path folder = empty_folder("tasks.refused");
  write_deck(folder);
  const auto refused = [&](const Words& settings, int code, const std::string& part) {
    const Outcome outcome = train(folder, 2, "run", settings);
    EXPECT_TRUE(outcome.ended_with(code)) << outcome.text();
    EXPECT_EQ(count(outcome.text(), part), 1) << outcome.text();
  };
  refused({"checkpoint.best_by=choices/acc"}, 78, "choices/true_mass, choices/accuracy");
  refused({"train.early_stopping_patience=1", "evaluate.steps=0"}, 78,
          "Set evaluate.steps or evaluate.epochs.");
  refused({"train.early_stopping_patience=1", "checkpoint.best_by=validation_loss"}, 78,
          "Set train.validate_steps or validate_epochs.");
  refused({"evaluate.tasks=[\"none.toml\"]"}, 65, "none.toml");
  EXPECT_FALSE(fs::exists(folder / "run"));
}

}  // namespace
}  // namespace finetune::tests::tasks_test
