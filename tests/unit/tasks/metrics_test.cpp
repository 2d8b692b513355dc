// SPDX-License-Identifier: Apache-2.0
// What answers are worth.
#include "tasks/metrics.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.hpp"
#include "support/errors.hpp"

namespace finetune::tasks::metrics_test {
namespace {

Task choices(std::vector<std::string> metrics) {
  Task task;
  task.file = "t.toml";
  task.metrics = std::move(metrics);
  return task;
}

Task answers(std::vector<std::string> metrics) {
  Task task = choices(std::move(metrics));
  task.kind = Kind::generate;
  return task;
}

Question question(std::vector<std::string> choices, std::int64_t right) {
  Question one;
  one.choices = std::move(choices);
  one.right = right;
  return one;
}

TEST(JudgeChoices, TakesTheLikeliestAlsoPerCharacter) {
  const Task task = choices({"accuracy", "accuracy_normalised"});
  const std::vector<ScoredChoice> scores = {{-6}, {-5}, {-9}};
  const Values short_one = judge_choices(task, question({"abcdef", "ab", "abcdefghij"}, 1), scores);
  EXPECT_EQ(short_one, (Values{{"accuracy", 1}, {"accuracy_normalised", 0}}));
  const Values long_one = judge_choices(task, question({"abcdef", "ab", "abcdefghij"}, 2), scores);
  EXPECT_EQ(long_one, (Values{{"accuracy", 0}, {"accuracy_normalised", 1}}));
  EXPECT_EQ(likeliest({{-3}, {-3}}), 0u) << "of equal ones the first";
}

TEST(JudgeChoices, CountsCharactersAndNotBytes) {
  const Task task = choices({"accuracy_normalised"});
  // Three characters of two bytes each: -9 / 3 is less than -8 / 4.
  EXPECT_EQ(judge_choices(task, question({"\u00e4\u00f6\u00fc", "abcd"}, 1), {{-9}, {-8}}),
            (Values{{"accuracy_normalised", 1}}));
}

TEST(JudgeChoices, AddsUpWhatIsTrue) {
  const Task task = choices({"true_mass"});
  Question one = question({"a", "b", "c"}, 0);
  one.all_right = {1, 0, 1};
  const Values values =
      judge_choices(task, one, {{std::log(0.2)}, {std::log(0.1)}, {std::log(0.1)}});
  EXPECT_NEAR(values.at("true_mass"), 0.75, 1e-12);
}

TEST(JudgeAnswers, ComparesWhatCounts) {
  Task task = answers({"exact_match"});
  const Question asked{.prompt = {}, .answer = "The  Rhine"};
  EXPECT_EQ(judge_answers(task, asked, {" The Rhine\n"}).at("exact_match"), 1);
  EXPECT_EQ(judge_answers(task, asked, {"the Rhine"}).at("exact_match"), 0);
  task.generation.ignores_case = true;
  EXPECT_EQ(judge_answers(task, asked, {"the rhine"}).at("exact_match"), 1);
  EXPECT_EQ(judge_answers(task, asked, {"the rhine."}).at("exact_match"), 0);
  task.generation.ignores_punctuation = true;
  EXPECT_EQ(judge_answers(task, asked, {"the rhine."}).at("exact_match"), 1);
}

TEST(JudgeAnswers, FindsTheNumberOfAWordProblem) {
  Task task = answers({"exact_match", "numeric"});
  task.generation.extract = R"(#### (-?[0-9.,]+))";
  task.generation.drop = {","};
  const Question asked{.prompt = {}, .answer = "2 * 600 = 1200 apples.\n#### 1,200"};
  const Values right = judge_answers(task, asked, {"So 3 and 4.\n#### 1200"});
  EXPECT_EQ(right.at("exact_match"), 1);
  EXPECT_EQ(right.at("numeric"), 1);
  const Values loose = judge_answers(task, asked, {"It is $1,200.00"});
  EXPECT_EQ(loose.at("exact_match"), 0) << "without the mark";
  EXPECT_EQ(loose.at("numeric"), 1);
  EXPECT_EQ(judge_answers(task, asked, {"none"}).at("numeric"), 0);
}

TEST(JudgeAnswers, OfSeveralTriesHaveAMajorityAndABest) {
  const Task task = answers({"exact_match"});
  const Question asked{.prompt = {}, .answer = "4"};
  const Values values = judge_answers(task, asked, {"4", "5", "5", "4 ", "4"});
  EXPECT_DOUBLE_EQ(values.at("exact_match"), 0.6);
  EXPECT_EQ(values.at("exact_match_majority"), 1);
  EXPECT_EQ(values.at("exact_match_any"), 1);
  const Values wrong = judge_answers(task, asked, {"5", "4", "5"});
  EXPECT_EQ(wrong.at("exact_match_majority"), 0);
  EXPECT_EQ(wrong.at("exact_match_any"), 1);
}

TEST(Counted, TakesTheFirstMatchOrTheLast) {
  Task task = answers({"exact_match"});
  task.generation.extract = "[0-9]+";
  EXPECT_EQ(counted(task, "1 and 23"), "23");
  task.generation.take = "first";
  EXPECT_EQ(counted(task, "1 and 23"), "1");
  EXPECT_EQ(counted(task, "none"), "none") << "without a match all of it counts";
  task.generation.extract = "[0-9";
  const std::string said = tests::error_of(core::ErrorKind::input, [&] { counted(task, "1"); });
  EXPECT_TRUE(said.starts_with("t.toml: \"[0-9\" is no regular expression")) << said;
}

TEST(Counted, DoesNotSearchForEver) {
  Task task = answers({"exact_match"});
  task.generation.extract = "(a+)+b";
  const std::string hostile(64, 'a');
  EXPECT_EQ(counted(task, hostile), hostile);
}

/// Values of SQuAD's own script.
TEST(TokenF1, IsThatOfSquad) {
  EXPECT_DOUBLE_EQ(token_f1("The cat sat.", "a cat sat"), 1);
  EXPECT_DOUBLE_EQ(token_f1("cat sat down", "the cat"), 0.5);
  EXPECT_DOUBLE_EQ(token_f1("dog", "cat"), 0);
  EXPECT_DOUBLE_EQ(token_f1("cat cat", "cat"), 2.0 / 3);
  EXPECT_DOUBLE_EQ(token_f1("", "the"), 1) << "nothing is left of either";
}

/// Values of the package rouge-score, without stemming.
TEST(RougeL, IsThatOfRougeScore) {
  EXPECT_DOUBLE_EQ(rouge_l("the cat sat on the mat", "the cat is on the mat"), 5.0 / 6);
  EXPECT_DOUBLE_EQ(rouge_l("a b c d", "d c b a"), 0.25);
  EXPECT_DOUBLE_EQ(rouge_l("Hello, World!", "hello world"), 1);
  EXPECT_DOUBLE_EQ(rouge_l("", "x"), 0);
}

TEST(LastNumber, ReadsWhatPeopleWrite) {
  EXPECT_EQ(last_number("from 3 to 1,234.50 dollars"), last_number("1234.5"));
  EXPECT_EQ(last_number("-$20"), last_number("-20"));
  EXPECT_EQ(last_number("it is 7."), last_number("7"));
  EXPECT_EQ(last_number("nothing"), "");
}

TEST(LastNumber, ReadsWhatIsBeyondAllNumbers) {
  EXPECT_EQ(last_number(std::string(400, '9')), "inf");
  EXPECT_EQ(last_number("-" + std::string(400, '9')), "-inf");
  EXPECT_EQ(last_number("0." + std::string(400, '0') + "1"), "0");
  const Task task = answers({"numeric"});
  const Question asked{.prompt = {}, .answer = "4"};
  EXPECT_EQ(judge_answers(task, asked, {"It is " + std::string(400, '4')}).at("numeric"), 0);
}

/// Of Python's len(re.split(r"\s+", text)).
TEST(NumWords, CountsAsPythonSplits) {
  EXPECT_EQ(num_words(""), 1);
  EXPECT_EQ(num_words("one"), 1);
  EXPECT_EQ(num_words(" one \t\n two\r\n"), 4);
  EXPECT_EQ(num_words("a\u00a0b\u2003c\u3000d\u2028e\u2029f\u202fg\u205fh\u0085i\u1680j"), 10);
  EXPECT_EQ(num_words("a\x1c\x1d"
                      "b\x1e"
                      "c\x1f"
                      "d"),
            4);
  EXPECT_EQ(num_words("a\u00a0 \u2003b"), 2) << "white space in a row";
  EXPECT_EQ(num_words("a\u200bb\u00e9c\ufeffd"), 1) << "none of these is white space";
}

TEST(IsJson, MayBeFencedAndHaveNames) {
  EXPECT_TRUE(is_json(R"( {"a": 1} )", ""));
  EXPECT_TRUE(is_json("Here:\n```json\n[1, 2]\n```\nDone", ""));
  EXPECT_FALSE(is_json("{a: 1}", ""));
  EXPECT_FALSE(is_json("", ""));
  EXPECT_TRUE(is_json(R"({"a": 1, "b": 2})", R"(["b"])"));
  EXPECT_FALSE(is_json(R"({"a": 1})", R"(["b"])"));
  EXPECT_FALSE(is_json("[1]", R"(["b"])"));
}

}  // namespace
}  // namespace finetune::tasks::metrics_test
