// SPDX-License-Identifier: Apache-2.0
// What a model has said counts for as long as it is asked the same.
#include "tasks/task_set.hpp"

#include <gtest/gtest.h>

namespace finetune::tasks::task_set_test {
namespace {

AskedTask asked() {
  AskedTask one;
  one.task.name = "t";
  one.task.kind = Kind::generate;
  one.task.metrics = {"exact_match"};
  one.questions = {{.prompt = "1+1", .answer = "2"}, {.prompt = "1+2", .answer = "3"}};
  return one;
}

TEST(TextOf, IsTheSameHoweverAnswersAreJudged) {
  AskedTask other = asked();
  other.task.metrics = {"numeric", "f1"};
  other.task.generation.extract = "[0-9]+";
  other.task.generation.take = "first";
  other.task.generation.drop = {","};
  other.task.generation.ignores_case = true;
  other.questions[0].answer = "two";
  EXPECT_EQ(text_of({other}), text_of({asked()}));
}

TEST(TextOf, IsAnotherOneOfWhatDecidesAnswers) {
  const auto changed = [](const auto& change) {
    AskedTask other = asked();
    change(other);
    return text_of({other}) != text_of({asked()});
  };
  EXPECT_TRUE(changed([](AskedTask& one) { one.task.name = "u"; }));
  EXPECT_TRUE(changed([](AskedTask& one) { one.task.uses_chat = true; }));
  EXPECT_TRUE(changed([](AskedTask& one) { one.task.generation.max_tokens = 7; }));
  EXPECT_TRUE(changed([](AskedTask& one) { one.task.generation.stops = {"."}; }));
  EXPECT_TRUE(changed([](AskedTask& one) { one.task.generation.samples = 2; }));
  EXPECT_TRUE(changed([](AskedTask& one) { one.task.generation.temperature = 0.5; }));
  EXPECT_TRUE(changed([](AskedTask& one) { one.task.generation.top_p = 0.5; }));
  EXPECT_TRUE(changed([](AskedTask& one) { one.task.perplexity.stride = 3; }));
  EXPECT_TRUE(changed([](AskedTask& one) { one.questions[1].prompt = "1+3"; }));
  EXPECT_TRUE(changed([](AskedTask& one) { one.questions.pop_back(); }));
  EXPECT_TRUE(changed([](AskedTask& one) {
    one.questions[0].prompt = "1";
    one.questions[1].prompt = "+11+2";
  })) << "the same letters in other questions";
}

}  // namespace
}  // namespace finetune::tasks::task_set_test
