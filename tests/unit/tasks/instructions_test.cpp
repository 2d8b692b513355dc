// SPDX-License-Identifier: Apache-2.0
// What answers make of instructions: the verdicts of lm-evaluation-harness, and of data that are
// wrong.
#include "tasks/detail/instructions.hpp"

#include <gtest/gtest.h>

#include "core/error.hpp"
#include "core/json.hpp"
#include "support/folders.hpp"
#include "tasks/metrics.hpp"
#include "tasks/results.hpp"

namespace finetune::tasks::instructions_test {
namespace {

std::string written(const std::vector<std::string>& ids, const std::vector<core::Json>& kwargs) {
  return core::Json({{"instructions", ids}, {"kwargs", kwargs}}).dump();
}

Instructions one(const std::string& id, const core::Json& kwargs = core::Json::object()) {
  return Instructions::read(written({id}, {kwargs}), "test");
}

// Origin: tests/golden/tasks/make_ifeval.py.
TEST(Instructions, AreJudgedAsByLmEvaluationHarness) {
  const core::Json rows =
      core::read_json(tests::source_folder() / "tests/golden/tasks/ifeval.json", 1 << 20);
  ASSERT_EQ(rows.size(), 360u);
  for (const core::Json& row : rows) {
    const Instructions instruction = one(row[0].get<std::string>(), row[1]);
    const auto answer = row[2].get<std::string>();
    EXPECT_EQ(instruction.strict(answer), std::vector{row[3].get<double>()}) << row;
    EXPECT_EQ(instruction.loose(answer), std::vector{row[4].get<double>()}) << row;
  }
}

TEST(Instructions, MeanTheCaseOfLettersAlone) {
  EXPECT_EQ(one("change_case:english_capital").strict("\u00c4RGER, 3!"), std::vector{1.0});
  EXPECT_EQ(one("change_case:english_capital").strict("\u00e4RGER"), std::vector{0.0});
  EXPECT_EQ(one("change_case:english_capital").strict("123"), std::vector{0.0});
  EXPECT_EQ(one("change_case:english_lowercase").strict("no \u00e9clair."), std::vector{1.0});
  EXPECT_EQ(one("change_case:english_lowercase").strict("No."), std::vector{0.0});
}

TEST(Instructions, CountSentencesByRules) {
  const auto are = [](std::int64_t count, const std::string& text) {
    const auto more = [&](std::int64_t n) {
      return one("length_constraints:number_sentences",
                 {{"relation", "at least"}, {"num_sentences", n}})
                 .strict(text)[0] != 0;
    };
    return more(count) && !more(count + 1);
  };
  EXPECT_TRUE(are(2, "Dr. Smith has 3.5 dogs. He likes them!"));
  EXPECT_TRUE(are(3, "What?! \"No.\" She left..."));
  EXPECT_TRUE(are(1, "no end, e.g. here\nor here"));
  EXPECT_TRUE(are(2, "(One.) Two. \""));
}

TEST(Instructions, LeaveLanguagesOut) {
  const Instructions some =
      Instructions::read(written({"language:response_language", "punctuation:no_comma"},
                                 {{{"language", "hi"}}, {{"language", nullptr}}}),
                         "test");
  EXPECT_EQ(some.size(), 1u);
  EXPECT_EQ(some.strict("a b"), std::vector{1.0});
  EXPECT_TRUE(one("language:response_language", {{"language", "hi"}}).empty());
}

TEST(Instructions, SayWhatIsWrongWithThem) {
  const auto refused = [](const std::string& json, const std::string& part) {
    try {
      Instructions::read(json, "data.jsonl:3");
      ADD_FAILURE() << json;
    } catch (const core::Error& error) {
      EXPECT_TRUE(std::string(error.what()).starts_with("data.jsonl:3")) << error.what();
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  const core::Json none = core::Json::object();
  refused("a text", "writes no instructions");
  refused(written({"punctuation:no_comma"}, {}), "as many of one as of the other");
  refused(written({"punctuation:no_coma"}, {none}), "Did you mean \"punctuation:no_comma\"?");
  refused(written({"keywords:existence"}, {none}), "keywords:existence: \"keywords\" is missing");
  refused(written({"keywords:existence"}, {{{"keywords", nullptr}}}), "\"keywords\" is null");
  refused(written({"detectable_format:number_bullet_lists"}, {{{"num_bullets", 2.5}}}),
          "\"num_bullets\" is 2.5");
  refused(written({"length_constraints:number_words"}, {{{"num_words", 3}, {"relation", "about"}}}),
          "\"less than\" or \"at least\"");
  refused(written({"keywords:existence"}, {{{"keywords", {"("}}}}), "no regular expression");
}

/// Two instructions, of which answers follow both, one, or one loosely.
Outcome outcome_of(const std::vector<std::string>& answers) {
  Task task;
  task.file = "t.toml";
  task.kind = Kind::generate;
  task.metrics = {"prompt_strict", "prompt_loose", "instruction_strict", "instruction_loose"};
  Question question;
  question.answer = written({"punctuation:no_comma", "detectable_format:title"},
                            {core::Json::object(), core::Json::object()});
  Outcome outcome{.model = "m", .task = "t", .judged = {}, .units = {}};
  for (const std::string& answer : answers)
    outcome.judged.push_back({.values = judge_answers(task, question, {answer}),
                              .parts = judge_parts(task, question, {answer})});
  return outcome;
}

TEST(Instructions, AreCountedByPromptAndOneByOne) {
  const auto figures = figures_of({outcome_of({"<<A>> b", "a, b", "Well, here it is:\n<<A>>"}), [] {
                                     Outcome other = outcome_of({"<<A>>", "<<A>>", "<<A>>"});
                                     other.model = "n";
                                     return other;
                                   }()});
  const auto figure = [&](const std::string& metric, const std::string& model) {
    return *std::ranges::find_if(
        figures, [&](const Figure& one) { return one.metric == metric && one.model == model; });
  };
  EXPECT_NEAR(figure("prompt_strict", "m").estimate.mean, 1.0 / 3, 1e-12);
  EXPECT_NEAR(figure("prompt_loose", "m").estimate.mean, 2.0 / 3, 1e-12);
  EXPECT_NEAR(figure("instruction_strict", "m").estimate.mean, 3.0 / 6, 1e-12);
  EXPECT_NEAR(figure("instruction_loose", "m").estimate.mean, 4.0 / 6, 1e-12);
  EXPECT_EQ(figure("prompt_strict", "m").num_questions, 3);
  EXPECT_EQ(figure("instruction_strict", "m").num_questions, 6);
  EXPECT_EQ(figure("instruction_strict", "n").num_better, 3);
  EXPECT_EQ(figure("instruction_strict", "n").num_worse, 0);
}

}  // namespace
}  // namespace finetune::tasks::instructions_test
