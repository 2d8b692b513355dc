// SPDX-License-Identifier: Apache-2.0
#include "formats/alpaca/alpaca.hpp"

#include <gtest/gtest.h>

#include "unit/data/fake.hpp"

namespace finetune::formats::alpaca::alpaca_test {
namespace {

using tests::TemporaryFolder;

std::vector<data::Sample> read_all(const std::filesystem::path& path) {
  const auto reader = format().open(path, {});
  std::vector<data::Sample> samples;
  for (std::int64_t i = 0; i < reader->size(); ++i)
    samples.push_back(reader->sample(i));
  return samples;
}

std::string refusal_of(std::string_view content, const std::string& name = "d.json") {
  const TemporaryFolder folder;
  const auto path = folder.write(name, content);
  return tests::refusal([&] { read_all(path); }, folder.path());
}

constexpr const char* plain_prompt =
    "Below is an instruction that describes a task. Write a response that appropriately completes "
    "the request.\n\n### Instruction:\nAdd.\n\n### Response:\n";
constexpr const char* input_prompt =
    "Below is an instruction that describes a task, paired with an input that provides further "
    "context. Write a response that appropriately completes the request.\n\n### "
    "Instruction:\nAdd.\n\n### Input:\n1 1\n\n### Response:\n";

TEST(Alpaca, MakesThePromptWithAndWithoutInput) {
  EXPECT_EQ(alpaca_prompt("Add."), plain_prompt);
  EXPECT_EQ(alpaca_prompt("Add.", ""), plain_prompt);
  EXPECT_EQ(alpaca_prompt("Add.", "1 1"), input_prompt);
  EXPECT_NE(alpaca_prompt("{} {0}", "{}").find("{} {0}\n\n### Input:\n{}\n"), std::string::npos);
}

TEST(Alpaca, ReadsAnArrayAndTrainsTheOutputOnly) {
  const TemporaryFolder folder;
  const auto samples = read_all(folder.write(
      "d.json",
      "[\n  {\"instruction\": \"Add.\", \"input\": \"1 1\", \"output\": \"2\"},\n"
      "  {\"instruction\": \"Add.\", \"input\": \"\", \"output\": \"\", \"id\": 7}\n]\n"));
  ASSERT_EQ(samples.size(), 2u);
  ASSERT_EQ(samples[0].segments.size(), 2u);
  EXPECT_EQ(samples[0].segments[0].text, input_prompt);
  EXPECT_FALSE(samples[0].segments[0].trained);
  EXPECT_EQ(samples[0].segments[1].text, "2");
  EXPECT_TRUE(samples[0].segments[1].trained);
  EXPECT_EQ(samples[0].where, (folder.path() / "d.json").string() + ":2: entry 1");
  EXPECT_EQ(samples[1].segments[0].text, plain_prompt);
  EXPECT_EQ(samples[1].segments[1].text, "");
}

TEST(Alpaca, ReadsLinesWithMissingOrNullInput) {
  const TemporaryFolder folder;
  const auto samples =
      read_all(folder.write("d.jsonl",
                            "{\"instruction\": \"Add.\", \"output\": \"2\"}\n"
                            "{\"output\": \"Zw\\u00f6lf\", \"input\": null, \"instruction\": "
                            "\"Add.\"}\r\n"));
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_EQ(samples[0].segments[0].text, plain_prompt);
  EXPECT_EQ(samples[1].segments[0].text, plain_prompt);
  EXPECT_EQ(samples[1].segments[1].text, "Zw\xC3\xB6lf");
  EXPECT_EQ(samples[1].where, (folder.path() / "d.jsonl").string() + ":2");
}

TEST(Alpaca, ReadsAFolder) {
  const TemporaryFolder folder;
  folder.write("2.jsonl", "{\"instruction\": \"b\", \"output\": \"2\"}");
  folder.write("1.json", "[{\"instruction\": \"a\", \"output\": \"1\"}]");
  folder.write("notes.txt", "not data");
  const auto samples = read_all(folder.path());
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_EQ(samples[0].segments[1].text, "1");
  EXPECT_EQ(samples[1].segments[1].text, "2");
}

TEST(Alpaca, RefusesAMissingField) {
  EXPECT_EQ(
      refusal_of("[{\"instruction\": \"a\", \"output\": \"b\"},\n {\"instruction\": \"a\", "
                 "\"response\": \"b\"}]"),
      "65: d.json:2: entry 2: field \"output\" is missing (the fields are \"instruction\", "
      "\"response\"). Add it, name another one in data.answer_column, or choose the data.format of "
      "these data.");
  EXPECT_EQ(refusal_of("{\"output\": \"b\"}\n", "d.jsonl"),
            "65: d.jsonl:1: field \"instruction\" is missing (the fields are \"output\"). Add it, "
            "name another one in data.prompt_column, or choose the data.format of these data.");
}

TEST(Alpaca, RefusesAWrongType) {
  EXPECT_EQ(refusal_of("{\"instruction\": \"a\", \"output\": \"b\"}\n{\"instruction\": \"a\", "
                       "\"output\": 4}\n",
                       "d.jsonl"),
            "65: d.jsonl:2: field \"output\" is of type number (text is needed). Make it a "
            "string.");
  EXPECT_EQ(refusal_of("[{\"instruction\": \"a\", \"input\": [], \"output\": \"b\"}]"),
            "65: d.json:1: entry 1: field \"input\" is of type array (text is needed). Make it a "
            "string.");
}

TEST(Alpaca, RefusesBrokenJsonInvalidUtf8AndEmptyFiles) {
  EXPECT_TRUE(refusal_of("[{\"instruction\": \"a\",\n \"output\": b}]")
                  .starts_with("65: d.json:2:12: "
                               "broken JSON ("))
      << refusal_of("[{\"instruction\": \"a\",\n \"output\": b}]");
  EXPECT_TRUE(refusal_of("{\"instruction\": \"\x80\", \"output\": \"b\"}")
                  .starts_with("65: d.json:1:18: byte 0x80 is not valid UTF-8"));
  EXPECT_EQ(refusal_of(""), "65: d.json: is empty (it holds no record). Is it the right file?");
}

TEST(Alpaca, ColumnsAreMappedByTheNamesOfFields) {
  const tests::TemporaryFolder folder;
  data::Columns columns;
  columns.mapped = {{"instruction", "q"}, {"input", "about"}, {"output", "a"}, {"system", "who"}};
  const auto path = folder.write(
      "d.jsonl", R"({"q": "Do.", "about": "It.", "a": "Done.", "who": "S", "instruction": 7})");
  const auto sample = format().open(path, columns)->sample(0);
  EXPECT_EQ(sample.segments.at(0).text, "S\n\n" + alpaca_prompt("Do.", "It."));
  EXPECT_EQ(sample.segments.at(1).text, "Done.");
}

TEST(Alpaca, HistoryIsSaidBefore) {
  const tests::TemporaryFolder folder;
  data::Columns columns;
  columns.mapped = {{"history", "before"}};
  const auto reader = format().open(
      folder.write("d.jsonl",
                   R"({"instruction": "c", "output": "d", "system": "s", "before": [["a", "b"]]})"
                   "\n"
                   R"({"instruction": "c", "output": "d", "before": []})"),
      columns);
  const auto& messages = reader->sample(0).conversation.messages;
  ASSERT_EQ(messages.size(), 5u);
  EXPECT_EQ(messages[1].text + messages[2].text + messages[3].text + messages[4].text, "abcd");
  EXPECT_EQ(messages[1].role, data::ChatRole::user);
  EXPECT_EQ(messages[2].role, data::ChatRole::assistant);
  EXPECT_TRUE(messages[2].trained);
  EXPECT_TRUE(reader->sample(0).segments.empty());
  EXPECT_EQ(reader->sample(1).segments.size(), 2u);
  const auto table =
      folder.write("d.csv", "instruction,output,history\nc,d,\"[[\"\"a\"\", \"\"b\"\"]]\"\nc,d,\n");
  EXPECT_EQ(format().open(table, {})->sample(0).conversation.messages.size(), 4u);
  EXPECT_EQ(format().open(table, {})->sample(1).conversation.messages.size(), 2u);
  EXPECT_EQ(refusal_of(R"([{"instruction": "a", "output": "b", "history": [["a"]]}])"),
            "65: d.json:1: entry 1: field \"history\" is no list of pairs (what was said before is "
            "[[question, answer], ...], of texts). Correct it, or name another field in "
            "data.columns.history.");
}

TEST(Alpaca, ATemplateTakesThePlaceOfItsPrompt) {
  const tests::TemporaryFolder folder;
  data::Columns columns;
  columns.prompt_template =
      "[INST] {{ instruction }}{% if input %} ({{ input }}){% endif %} [/INST]";
  const auto path = folder.write("d.jsonl", R"({"instruction": "i", "input": "x", "output": "o"})");
  const auto sample = format().open(path, columns)->sample(0);
  EXPECT_EQ(sample.segments.at(0).text, "[INST] i (x) [/INST]");
  EXPECT_FALSE(sample.segments.at(0).trained);
  EXPECT_EQ(sample.segments.at(1).text, "o");
  EXPECT_TRUE(sample.segments.at(1).trained);
  EXPECT_EQ(sample.conversation.messages.at(0).text, "[INST] i (x) [/INST]");
}

}  // namespace
}  // namespace finetune::formats::alpaca::alpaca_test
