// SPDX-License-Identifier: Apache-2.0
#include "cli.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

#include "core/error.hpp"
#include "support/messages.hpp"

namespace finetune::app::cli_test {
namespace {

using finetune::tests::expect_message;

/// argv of a command line.
class Words {
 public:
  Words(std::initializer_list<std::string> words) : words_(words) {
    words_.insert(words_.begin(), "finetune");
    for (std::string& word : words_)
      pointers_.push_back(word.data());
    pointers_.push_back(nullptr);
  }
  int count() const { return static_cast<int>(words_.size()); }
  char** pointers() { return pointers_.data(); }

 private:
  std::vector<std::string> words_;
  std::vector<char*> pointers_;
};

Arguments parsed(std::initializer_list<std::string> list) {
  Words words(list);
  return parse(words.count(), words.pointers());
}

bool trains(std::initializer_list<std::string> list) {
  Words words(list);
  return needs_ranks(words.count(), words.pointers());
}

std::string refusal(std::initializer_list<std::string> list) {
  try {
    parsed(list);
  } catch (const core::Error& error) {
    EXPECT_EQ(error.kind(), core::ErrorKind::command_line);
    return error.what();
  }
  return "nothing thrown";
}

void expect_refusal(std::initializer_list<std::string> list, const tests::Facts& facts,
                    tests::Caller caller = tests::Caller::current()) {
  expect_message(refusal(list), "finetune", facts, caller);
}

TEST(CommandLine, ADeckMeansTraining) {
  const Arguments arguments = parsed({"input.toml", "train.seed=3", "data.path=a b"});
  EXPECT_EQ(arguments.command, Command::train);
  EXPECT_EQ(arguments.path, "input.toml");
  EXPECT_EQ(arguments.overrides, (std::vector<std::string>{"train.seed=3", "data.path=a b"}));
}

TEST(CommandLine, TakesTrainForACommand) {
  const Arguments arguments = parsed({"train", "input.toml", "train.seed=3"});
  EXPECT_EQ(arguments.command, Command::train);
  EXPECT_EQ(arguments.path, "input.toml");
  EXPECT_EQ(arguments.overrides, std::vector<std::string>{"train.seed=3"});
  EXPECT_EQ(parsed({"train", "./train"}).path, "./train");
  EXPECT_TRUE(trains({"train", "input.toml"}));
  EXPECT_FALSE(trains({"train", "--help"}));
  expect_refusal({"train"}, {});
  expect_refusal({"train", "--fast"}, {"--fast"});
}

TEST(CommandLine, SaysWhatACommandOfOtherProgramsIsHere) {
  expect_message(refusal({"validate", "input.toml"}), "finetune",
                 {"'validate'", "data.validation_path", "train.validate_steps", "metrics.answers",
                  "MODEL", "\"prompt\""});
  expect_refusal({"chat", "model"}, {"MODEL", "\"prompt\"", "--chat"});
  expect_refusal({"sft", "input.toml"}, {"DECK.toml"});
  expect_refusal({"resume", "output"}, {});
  expect_refusal({"download", "model"}, {});
  expect_message(refusal({"exprot", "a", "b"}), "finetune", {"'exprot'", "'export'"});
  expect_refusal({"elephant"}, {"--help"});
}

TEST(CommandLine, TakesAConfigurationToImport) {
  const Arguments arguments =
      parsed({"import", "a.yml", "model.path=m", "--from", "axolotl", "--ranks", "8"});
  EXPECT_EQ(arguments.command, Command::import_configuration);
  EXPECT_EQ(arguments.path, "a.yml");
  EXPECT_EQ(arguments.from, "axolotl");
  EXPECT_EQ(arguments.ranks, 8);
  EXPECT_EQ(arguments.overrides, std::vector<std::string>{"model.path=m"});
  EXPECT_FALSE(trains({"import", "a.yml"}));
  expect_refusal({"import", "a.yml", "--from", "keras"}, {"axolotl"});
  expect_refusal({"migrate"}, {"FILE"});
}

TEST(CommandLine, NamesTheKeyOfAnOptionBehindTheDeck) {
  expect_refusal({"input.toml", "--learning_rate=1e-5"}, {"optimizer.lr=1e-5"});
  expect_refusal({"input.toml", "--optimizer.lr=1e-5"}, {"optimizer.lr=1e-5"});
  expect_refusal({"input.toml", "--num-train-epochs", "3"}, {"train.epochs="});
  expect_refusal({"input.toml", "--elephant"}, {"--help"});
}

TEST(CommandLine, TakesHelpAndVersionWithoutDashes) {
  EXPECT_EQ(parsed({"version"}).command, Command::version);
  EXPECT_EQ(parsed({"reference"}).command, Command::reference);
  EXPECT_FALSE(trains({"help"}));
}

TEST(CommandLine, NeedsMpiForTrainingAndForWhatRanksShare) {
  EXPECT_TRUE(trains({"input.toml"}));
  EXPECT_TRUE(trains({"./plan"}));
  EXPECT_FALSE(trains({"plan", "input.toml"}));
  EXPECT_FALSE(trains({"generate"}));
  ::setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
  EXPECT_TRUE(trains({"generate", "model", "prompt"})) << "ranks share the model";
  EXPECT_FALSE(trains({"generate", "--help"}));
  EXPECT_FALSE(trains({"export", "run", "out"}));
  ::unsetenv("OMPI_COMM_WORLD_SIZE");
  EXPECT_FALSE(trains({"export"}));
  EXPECT_FALSE(trains({"verify"}));
  EXPECT_FALSE(trains({"report"}));
  EXPECT_FALSE(trains({"watch"}));
  EXPECT_FALSE(trains({"--version"}));
  EXPECT_FALSE(trains({""}));
  EXPECT_FALSE(trains({}));
}

/// Several ranks with a wrong command line say so once: they need each other for that.
TEST(CommandLine, NeedsMpiWhereItHasCompanions) {
  ::setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
  EXPECT_TRUE(trains({}));
  EXPECT_TRUE(trains({"--unknown"}));
  EXPECT_FALSE(trains({"--version"}));
  EXPECT_FALSE(trains({"plan", "input.toml"}));
  ::setenv("OMPI_COMM_WORLD_SIZE", "1", 1);
  EXPECT_FALSE(trains({}));
  ::unsetenv("OMPI_COMM_WORLD_SIZE");
}

TEST(CommandLine, ReadsPlan) {
  const Arguments arguments = parsed({"plan", "input.toml", "train.seed=3", "--ranks", "8",
                                      "--ranks-per-node", "4", "--memory", "80GiB"});
  EXPECT_EQ(arguments.command, Command::plan);
  EXPECT_EQ(arguments.path, "input.toml");
  EXPECT_EQ(arguments.overrides, std::vector<std::string>{"train.seed=3"});
  EXPECT_EQ(arguments.ranks, 8);
  EXPECT_EQ(arguments.ranks_per_node, 4);
  EXPECT_EQ(arguments.memory, "80GiB");
  EXPECT_EQ(parsed({"plan", "input.toml"}).ranks, std::nullopt);
  EXPECT_FALSE(arguments.on_gpu);
  EXPECT_TRUE(parsed({"plan", "--gpu", "input.toml"}).on_gpu);
  EXPECT_EQ(parsed({"plan", "input.toml", "--machine", "h100-8", "--samples", "52002"}).samples,
            52002);
}

TEST(CommandLine, ReadsGenerate) {
  const Arguments arguments =
      parsed({"generate", "--temperature", "0.7", "--top-p", "0.9", "--max-tokens", "5", "--seed",
              "11", "--instruction", "model", "Say it."});
  EXPECT_EQ(arguments.command, Command::generate);
  EXPECT_EQ(arguments.path, "model");
  EXPECT_EQ(arguments.second, "Say it.");
  EXPECT_EQ(arguments.sampling.temperature, 0.7);
  EXPECT_EQ(arguments.sampling.top_p, 0.9);
  EXPECT_EQ(arguments.max_tokens, 5);
  EXPECT_EQ(arguments.seed, 11);
  EXPECT_TRUE(arguments.is_instruction);
}

TEST(CommandLine, ReadsExportAndVerify) {
  const Arguments out = parsed({"export", "run/step-1", "out", "--model", "m", "--dtype",
                                "bfloat16", "--max-shard-size", "1GB"});
  EXPECT_EQ(out.command, Command::export_weights);
  EXPECT_EQ(out.path, "run/step-1");
  EXPECT_EQ(out.second, "out");
  EXPECT_EQ(out.model, "m");
  EXPECT_EQ(out.dtype, "bfloat16");
  EXPECT_EQ(out.max_shard_size, "1GB");
  const Arguments verify = parsed({"verify", "run/step-1"});
  EXPECT_EQ(verify.command, Command::verify);
  EXPECT_EQ(verify.path, "run/step-1");
}

TEST(CommandLine, ReadsReportAndWatch) {
  const Arguments report = parsed({"report", "runs/a", "runs/b", "-o", "out.html", "--log"});
  EXPECT_EQ(report.command, Command::report);
  EXPECT_EQ(report.runs, (std::vector<std::string>{"runs/a", "runs/b"}));
  EXPECT_EQ(report.second, "out.html");
  EXPECT_TRUE(report.is_logarithmic);
  EXPECT_FALSE(report.is_csv);
  EXPECT_EQ(parsed({"report", "runs/a", "--svg", "loss"}).picture, "loss");
  EXPECT_TRUE(parsed({"report", "runs/a", "--csv"}).is_csv);
  const Arguments watch = parsed({"watch", "runs/a", "--once"});
  EXPECT_EQ(watch.command, Command::watch);
  EXPECT_EQ(watch.path, "runs/a");
  EXPECT_TRUE(watch.is_once);
}

TEST(CommandLine, TakesAPromptThatBeginsWithADash) {
  EXPECT_EQ(parsed({"generate", "model", "--", "- one\n- two"}).second, "- one\n- two");
}

TEST(CommandLine, ReadsQuestionsAboutItself) {
  EXPECT_EQ(parsed({"--version"}).command, Command::version);
  EXPECT_EQ(parsed({"--reference"}).command, Command::reference);
}

TEST(CommandLine, RefusesWhatItDoesNotKnow) {
  expect_refusal({}, {});
  expect_refusal({"--verbose"}, {"--verbose"});
  expect_refusal({"input.toml", "--ranks", "3"}, {"--ranks"});
  expect_refusal({"plan"}, {});
  expect_refusal({"plan", "input.toml", "--ranks", "0"}, {"--ranks"});
  expect_refusal({"plan", "input.toml", "--ranks", "three"}, {"--ranks"});
  expect_refusal({"plan", "input.toml", "--machine", "h100-8", "--samples", "0"}, {"--samples"});
  expect_refusal({"plan", "input.toml", "--samples", "5"}, {"--machine"});
  expect_refusal({"generate", "model"}, {});
  expect_refusal({"generate", "model", "x", "--top-p", "1.5"}, {"--top-p"});
  expect_refusal({"generate", "model", "x", "--max-tokens", "0"}, {"--max-tokens"});
  expect_refusal({"generate", "model", "x", "--seed", "-1"}, {"--seed"});
  expect_refusal({"export", "a", "b", "--dtype", "int8"}, {"--dtype"});
  expect_refusal({"verify", "a", "b"}, {"b"});
  expect_refusal({"report"}, {});
  expect_refusal({"report", "a", "--svg", "moss"}, {"--svg"});
  expect_refusal({"report", "a", "--svg", "loss", "--csv"}, {"--csv"});
  expect_refusal({"watch"}, {});
  expect_refusal({"status", "a"}, {"RUN"});
}

TEST(CommandLineDeathTest, HelpIsNoError) {
  EXPECT_EXIT(parsed({"--help"}), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(parsed({"plan", "--help"}), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace finetune::app::cli_test
