// SPDX-License-Identifier: Apache-2.0
// Questions as task files make them of records.
#include "tasks/requests.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "core/error.hpp"
#include "support/errors.hpp"

namespace finetune::tasks::requests_test {
namespace {

namespace fs = std::filesystem;

class Tasks : public testing::Test {
 protected:
  Tasks() { fs::create_directories(folder_); }
  ~Tasks() override { fs::remove_all(folder_); }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
  }
  Task read(const std::string& text, const std::string& data) const {
    write("t.toml", text);
    write("d.jsonl", data);
    return Task::read(folder_ / "t.toml", {});
  }
  std::vector<Question> questions(const std::string& text, const std::string& data,
                                  std::int64_t limit = 0) const {
    return questions_of(read(text, data), limit);
  }
  std::string refusal(const std::string& text, const std::string& data) const {
    try {
      questions(text, data);
    } catch (const core::Error& error) {
      std::string message = error.what();
      for (auto at = message.find(folder_.string()); at != std::string::npos;
           at = message.find(folder_.string()))
        message.erase(at, folder_.string().size() + 1);
      return message;
    }
    return "nothing thrown";
  }

  fs::path folder_ =
      fs::temp_directory_path() / ("finetune-tasks-" + std::to_string(::getpid()) + "-" +
                                   testing::UnitTest::GetInstance()->current_test_info()->name());
};

constexpr const char* choices = R"([task]
kind = "choices"
data = "d.jsonl"
prompt = "Q: {{ question }}\nA:"
choices = "{{ choices | tojson }}"
answer = "{{ right }}"
)";

TEST_F(Tasks, OfChoicesHaveAContinuationEach) {
  const auto all = questions(choices, R"({"question": "1+1?", "choices": ["2", "3"], "right": 0})"
                                      "\n"
                                      R"({"question": "1+2?", "choices": ["2", "3"], "right": 1})");
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[1].prompts, (std::vector<std::string>{"Q: 1+2?\nA:", "Q: 1+2?\nA:"}));
  EXPECT_EQ(all[1].continuations, (std::vector<std::string>{" 2", " 3"}));
  EXPECT_EQ(all[1].right, 1);
}

TEST_F(Tasks, MayPutTheChoiceIntoThePrompt) {
  const auto all = questions(
      R"([task]
kind = "choices"
data = "d.jsonl"
prompt = "{{ sentence.split('_')[0] }}{{ choice }}"
choices = ["{{ option1 }}", "{{ option2 }}"]
continuation = "{{ sentence.split('_')[1] }}"
delimiter = ""
answer = "{{ answer | int - 1 }}"
)",
      R"({"sentence": "The _ is hot.", "option1": "sun", "option2": "moon", "answer": "1"})");
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].prompts, (std::vector<std::string>{"The sun", "The moon"}));
  EXPECT_EQ(all[0].continuations, (std::vector<std::string>{" is hot.", " is hot."}));
  EXPECT_EQ(all[0].right, 0);
}

TEST_F(Tasks, MayHaveSeveralRightChoices) {
  const auto all =
      questions(choices, R"({"question": "?", "choices": ["a", "b"], "right": [0, 1]})");
  EXPECT_EQ(all[0].all_right, (std::vector<std::int64_t>{0, 1}));
  EXPECT_EQ(all[0].right, 1);
}

constexpr const char* answers = R"([task]
kind = "generate"
data = "d.jsonl"
prompt = "Q: {{ q }}\nA:"
answer = "{{ a }}"
description = "Answer.\n"

[few_shot]
count = 1
)";

constexpr const char* texts = R"([task]
kind = "perplexity"
data = "d.jsonl"
prompt = "{{ text }}"
)";

TEST_F(Tasks, HaveExamplesThatAreNotTheQuestionItself) {
  const auto all =
      questions(answers, "{\"q\": \"one\", \"a\": \"1\"}\n{\"q\": \"two\", \"a\": \"2\"}\n");
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].prompt, "Answer.\nQ: two\nA: 2\n\nQ: one\nA:");
  EXPECT_EQ(all[1].prompt, "Answer.\nQ: one\nA: 1\n\nQ: two\nA:");
  EXPECT_EQ(all[0].answer, "1");
}

TEST_F(Tasks, AreRefusedWithAllTheirProblems) {
  EXPECT_EQ(
      refusal("[task]\nkind = \"choices\"\ndata = \"d.jsonl\"\nprompt = \"x\"\nmetrics = "
              "[\"f1\"]\nmetric = \"f1\"\n",
              "{}"),
      "t.toml:1: task.choices is missing (the likeliest of them is the answer). Give them, or "
      "another task.kind.\n    [task]\n    ^~~~~~\n"
      "t.toml:1: task.answer is missing (answers are compared with it). Give it.\n"
      "    [task]\n    ^~~~~~\n"
      "t.toml:5: task.metrics has \"f1\" (tasks of this kind are not judged by that). Use "
      "\"accuracy\", \"accuracy_normalised\", \"true_mass\".\n"
      "    metrics = [\"f1\"]\n              ^~~~~~\n"
      "t.toml:6: [task] has no key 'metric' (it would be ignored). Did you mean 'metrics'?\n"
      "    metric = \"f1\"\n    ^~~~~~\nt.toml: 4 problems.");
}

TEST_F(Tasks, NameTheRecordThatLacksAField) {
  EXPECT_EQ(
      refusal(choices,
              "{\"question\": \"?\", \"choices\": [\"a\", \"b\"], \"right\": 0}\n"
              "{\"Question\": \"?\", \"choices\": [\"a\", \"b\"], \"right\": 0}\n"),
      "d.jsonl:2: question is undefined (task.prompt of t.toml reads it, and there are "
      "Question, choices, right, choice, index). Did you mean Question? {{ name | default('') }} "
      "reads what may be missing.");
}

TEST_F(Tasks, NameTheFieldThatAnyTemplateLacks) {
  const auto beginning = [&](const std::string& text, const std::string& data) {
    const std::string message = refusal(text, data);
    return message.substr(0, message.find(" reads it"));
  };
  const auto with = [](std::string text, const std::string& old, const std::string& by) {
    return text.replace(text.find(old), old.size(), by);
  };
  const std::string record = R"({"question": "?", "choices": {"text": ["a", "b"]}, "right": 0})";
  EXPECT_EQ(beginning(with(choices, "{{ choices | tojson }}", "{{ options | tojson }}"), record),
            "d.jsonl:1: options is undefined (task.choices of t.toml");
  EXPECT_EQ(
      beginning(with(choices, "{{ choices | tojson }}", "{{ choices.texts | tojson }}"), record),
      "d.jsonl:1: \"texts\" of a dict is undefined (task.choices of t.toml");
  const std::string two = with(choices, "\"{{ choices | tojson }}\"", "[\"{{ one }}\", \"b\"]");
  EXPECT_EQ(beginning(two, record), "d.jsonl:1: one is undefined (task.choices of t.toml");
  EXPECT_EQ(
      beginning(with(with(choices, "choices | tojson", "choices.text | tojson"), "right", "label"),
                record),
      "d.jsonl:1: label is undefined (task.answer of t.toml");
  EXPECT_EQ(beginning(with(choices, "choices | tojson", "choices.text | tojson") +
                          "continuation = \"{{ end }}\"\n",
                      record),
            "d.jsonl:1: end is undefined (task.continuation of t.toml");
  EXPECT_EQ(beginning(answers, "{\"q\": \"one\", \"a\": \"1\"}\n{\"q\": \"two\"}\n"),
            "d.jsonl:2: a is undefined (task.answer of t.toml");
  EXPECT_EQ(beginning(texts, R"({"document": "Once."})"),
            "d.jsonl:1: text is undefined (task.prompt of t.toml");
}

TEST_F(Tasks, MayReadWhatIsMissingWithADefault) {
  const auto all = questions(
      R"([task]
kind = "generate"
data = "d.jsonl"
prompt = """{% macro quoted(words) %}<{{ words }}>{% endmacro -%}
{{ extra | default('none') }}{% for item in items %}{{ quoted(item) }}{% endfor %}\
{% if hint is defined %}{{ hint }}{% endif %}"""
answer = "{% set x = 1 %}{{ x }}"
)",
      R"({"items": ["a", "b"]})");
  EXPECT_EQ(all[0].prompt, "none<a><b>");
  EXPECT_EQ(all[0].answer, "1");
}

/// lm-evaluation-harness has keep_trailing_newline, and neither trim_blocks nor lstrip_blocks.
TEST_F(Tasks, KeepTheLinesThatATemplateEnds) {
  std::string text = answers;
  text.replace(text.find("\"Q: {{ q }}\\nA:\""), 16,
               "\"\"\"{% if q %}\n  {{ q }}\n{% endif %}\n### Response:\n\"\"\"");
  text.replace(text.find("count = 1"), 9, "count = 0");
  EXPECT_EQ(questions(text, R"({"q": "one", "a": "1"})")[0].prompt,
            "Answer.\n\n  one\n\n### Response:\n");
}

TEST_F(Tasks, HaveNoTextsThatAreEmpty) {
  EXPECT_EQ(refusal(texts, "{\"text\": \"Once.\"}\n{\"text\": \"\"}\n"),
            "d.jsonl:2: task.prompt writes no text (its likelihood is that of its tokens). Take "
            "the record out, or correct the template.");
}

TEST_F(Tasks, AreRefusedWithExpressionsThatAreNone) {
  EXPECT_EQ(
      refusal(std::string(answers) + "[generate]\nextract = \"[0-9\"\ndrop = [\",\", \"(\"]\n",
              "{}"),
      "t.toml:11: generate.extract: \"[0-9\" is no regular expression (at character 5: "
      "missing terminating ] for character class). Correct it.\n"
      "    extract = \"[0-9\"\n              ^~~~~~\n"
      "t.toml:12: generate.drop: \"(\" is no regular expression (at character 2: missing "
      "closing parenthesis). Correct it.\n"
      "    drop = [\",\", \"(\"]\n           ^~~~~~~~~~\nt.toml: 2 problems.");
}

TEST_F(Tasks, NameTheRecordWhoseAnswerIsNoChoice) {
  EXPECT_EQ(refusal(choices, R"({"question": "?", "choices": ["a", "b"], "right": 2})"),
            "d.jsonl:1: the right choice is \"2\" (it is a number from 0 to 1, or a list of 2 "
            "times 0 or 1). Correct task.answer, or the question.");
  EXPECT_EQ(refusal(choices, R"({"question": "?", "choices": ["a"], "right": 0})"),
            "d.jsonl:1: there are 1 choices (one of them is to be chosen). Correct the question.");
  EXPECT_EQ(refusal(choices, R"({"question": "?", "choices": "ab", "right": 0})"),
            "d.jsonl:1: task.choices does not write a JSON list of texts (it is the only one, and "
            "writes: \"ab\"). Write {{ field | tojson }}, or give several templates.");
}

TEST_F(Tasks, EndTemplatesThatNeverWould) {
  std::string text = answers;
  text.replace(text.find("Q: {{ q }}"), 10,
               "{% for i in range(100000) %}{% for j in range(100000) %}x{% endfor %}{% endfor %}");
  const std::string message =
      refusal(text, "{\"q\": \"one\", \"a\": \"1\"}\n{\"q\": \"t\", \"a\": \"2\"}\n");
  EXPECT_TRUE(message.starts_with("d.jsonl:1: task.prompt cannot be written: ")) << message;
}

TEST_F(Tasks, ThatAreNoTemplateOrHaveNoDataAreRefused) {
  std::string text = choices;
  text.replace(text.find("{{ question }}"), 14, "{{ question");
  EXPECT_TRUE(refusal(text, "{}").starts_with("t.toml: task.prompt is no template: "))
      << refusal(text, "{}");
  EXPECT_TRUE(refusal(choices, "").find("d.jsonl") != std::string::npos);
  write("t.toml", choices);
  fs::remove(folder_ / "d.jsonl");
  tests::expect_error(core::ErrorKind::input, "the data are not there",
                      [&] { Task::read(folder_ / "t.toml", {}); });
}

}  // namespace
}  // namespace finetune::tasks::requests_test
