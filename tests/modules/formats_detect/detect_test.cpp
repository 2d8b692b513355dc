// SPDX-License-Identifier: Apache-2.0
// Which of the formats is found from a file.
#include <gtest/gtest.h>

#include "data/text/detect_format.hpp"
#include "registry.hpp"
#include "support/folders.hpp"
#include "support/messages.hpp"
#include "unit/data/fake.hpp"

namespace finetune::tests::detect_test {
namespace {

class DetectFormat : public testing::Test {
 protected:
  std::string found(const std::string& name, std::string_view text,
                    const data::Columns& columns = {}) {
    return found_in(folder_.write(name, text), columns);
  }
  std::string found(std::string_view record, const data::Columns& columns = {}) {
    return found("d.jsonl", record, columns);
  }
  std::string found_in(const std::filesystem::path& path, const data::Columns& columns = {}) {
    return data::detect_format(path, columns, modules::registry().formats).name;
  }
  std::string refused(std::string_view record, const data::Columns& columns = {}) {
    return refusal([&] { found(record, columns); }, folder_.path());
  }

  const TemporaryFolder folder_;
};

TEST_F(DetectFormat, NamesWhatHasNoFormInJson) {
  const auto path = source_folder() / "tests/golden/data/chats.parquet";
  const auto found = data::detect_format({path}, {}, modules::registry().formats);
  EXPECT_EQ(found.name, "messages");
  EXPECT_TRUE(holds_fact(found.why, "messages.timestamp")) << found.why;
  EXPECT_TRUE(holds_fact(found.why, "tools.function.since")) << found.why;
}

TEST_F(DetectFormat, KnowsEachByItsFields) {
  EXPECT_EQ(found(R"({"instruction": "a", "input": "", "output": "b"})"), "alpaca");
  EXPECT_EQ(found(R"({"prompt": "a", "completion": "b"})"), "completion");
  EXPECT_EQ(found(R"({"text": "a"})"), "text");
  EXPECT_EQ(found(R"({"input_ids": [1], "labels": [1]})"), "tokens");
  EXPECT_EQ(found(R"({"messages": [{"role": "user", "content": "a"}]})"), "messages");
  EXPECT_EQ(found(R"({"id": 1, "conversations": [{"from": "human", "value": "a"}]})"), "sharegpt");
  EXPECT_EQ(found(R"({"conversations": [{"role": "user", "content": "a"}]})"), "chat");
  EXPECT_EQ(found(R"({"messages": [{"from": "user", "value": "a"}]})"), "chat");
}

TEST_F(DetectFormat, KnowsBinaryFilesByTheirKindOrTheirColumns) {
  const auto golden = source_folder() / "tests/golden/data";
  EXPECT_EQ(found_in(golden / "megatron-int32.idx"), "token_documents");
  EXPECT_EQ(found_in(golden / "arrow-saved"), "messages");
  data::Columns columns;
  columns.tokens = "tokens";
  EXPECT_EQ(found_in(golden / "mds-gz", columns), "tokens");
  EXPECT_EQ(found_in(golden / "arrow-lz4.feather"), "text");
}

TEST_F(DetectFormat, TakesPlainTextForText) {
  EXPECT_EQ(found("d.txt", "{ not JSON"), "text");
  EXPECT_EQ(found("README", "Once upon a time"), "text");
  EXPECT_EQ(found("lines", R"({"prompt": "a", "completion": "b"})"), "completion");
  std::string list = "[";
  for (int i = 0; i < 8; ++i)
    list += R"({"prompt": "a", "completion": "b"}, )";
  EXPECT_EQ(found("list.json", list + R"({"x": ])"), "completion")
      << "what follows the first records is not looked at";
}

TEST_F(DetectFormat, TakesNoTableAndNothingThatTheDeckNamesFieldsOfForText) {
  const auto refused_file = [&](const std::string& name, const data::Columns& columns = {}) {
    return refusal([&] { found(name, "question,answer\n1,2\n", columns); }, folder_.path());
  };
  for (const char* name : {"faq.xlsx", "faq.xml"})
    EXPECT_NE(refused_file(name).find("holds no records that could be read (neither its name"),
              std::string::npos)
        << name;
  data::Columns columns;
  columns.prompt = "question";
  for (const char* name : {"faq.txt", "faq"})
    EXPECT_NE(refused_file(name, columns).find("(the deck names fields of records)"),
              std::string::npos)
        << name;
  EXPECT_EQ(found("data.js", R"([{"prompt": "a", "completion": "b"}])"), "completion");
}

TEST_F(DetectFormat, OfAFolderLooksAtItsFirstRecordsOfTheSplit) {
  folder_.write("notes.txt", "a");
  EXPECT_EQ(found_in(folder_.path()), "text");
  folder_.write("test.jsonl", R"({"text": "a"})");
  folder_.write("train.jsonl", R"({"prompt": "a", "completion": "b"})");
  EXPECT_EQ(found_in(folder_.path()), "completion") << "text next to records is not data";
}

TEST_F(DetectFormat, PrefersAnythingToTheTextThatManyDataSetsHoldBesides) {
  EXPECT_EQ(found(R"({"instruction": "a", "output": "b", "text": "ab"})"), "alpaca");
  data::Columns columns;
  columns.text = "text";
  EXPECT_NE(refused(R"({"instruction": "a", "output": "b", "text": "ab"})", columns)
                .find("may be of the format alpaca or text"),
            std::string::npos);
}

TEST_F(DetectFormat, FollowsTheColumnsOfTheDeck) {
  data::Columns columns;
  columns.answer = "response";
  EXPECT_EQ(found(R"({"instruction": "a", "response": "b"})", columns), "alpaca");
  columns.conversation = "chat";
  EXPECT_EQ(found(R"({"chat": [{"role": "user", "content": "a"}]})", columns), "messages");
}

TEST_F(DetectFormat, LooksAtALaterRecordWhereTheFirstIsEmpty) {
  EXPECT_EQ(found("{\"messages\": []}\n{\"messages\": [{\"role\": \"user\"}]}"), "messages");
}

TEST_F(DetectFormat, NamesTheCandidatesAndTheFieldsWhereSeveralFit) {
  EXPECT_EQ(
      refused(R"({"prompt": "a", "completion": "b", "messages": [{"role": "user"}]})"),
      "65: d.jsonl: may be of the format completion or messages (the fields of its first record "
      "are \"prompt\", \"completion\", \"messages\"). Set data.format to the one that is meant.");
  data::Columns columns;
  columns.prompt = "question";
  columns.answer = "answer";
  EXPECT_NE(refused(R"({"question": "a", "answer": "b"})", columns).find("alpaca or completion"),
            std::string::npos);
}

TEST_F(DetectFormat, NamesTheFieldsWhereNoneFits) {
  EXPECT_EQ(refused(R"({"question": "a", "answer": "b"})"),
            "65: d.jsonl: has a format that is not known by its fields (its first record has the "
            "fields \"question\", \"answer\"). If they are a prompt and its answer, write below "
            "[data]: format = \"completion\", prompt_column = \"question\", answer_column = "
            "\"answer\".");
  EXPECT_EQ(refused(R"({"left": "a", "right": "b"})"),
            "65: d.jsonl: has a format that is not known by its fields (its first record has the "
            "fields \"left\", \"right\"). Set data.format to one of alpaca, chat, completion, "
            "messages, qwen, sharegpt, text, token_documents, tokens, and name the fields, for "
            "example data.prompt_column and data.answer_column.");
  EXPECT_EQ(refused(R"({"prompt": "a", "chosen": "b", "rejected": "c"})"),
            "65: d.jsonl: holds pairs of a chosen and a rejected answer (its first record has the "
            "fields \"prompt\", \"chosen\", \"rejected\"). To train on both, set "
            "model.problem_type = \"reward\"; to learn from the chosen ones alone, data.format = "
            "\"completion\" and data.answer_column = \"chosen\".");
}

TEST_F(DetectFormat, OffersAChatWhereColumnsAreCalledAsRoles) {
  EXPECT_EQ(found("d.csv", "prompt;completion\na, b;c\n"), "completion");
  EXPECT_EQ(refused(R"({"id": "1", "system": "s", "Human": "a", "Assistant": "b"})"),
            "65: d.jsonl: has columns that are called as roles of a chat are (its first record has "
            "the fields \"id\", \"system\", \"Human\", \"Assistant\"). If they are what user and "
            "assistant say, write below [data]: format = \"chat\", turn_columns = [\"Human\", "
            "\"Assistant\"].");
  data::Columns columns;
  columns.turns = {"Human", "Assistant"};
  EXPECT_EQ(found(R"({"Human": "a", "Assistant": "b"})", columns), "chat");
  for (const char* other : {R"({"user": "a", "text_of": "b"})", R"({"user": ["a"], "bot": "b"})",
                            R"({"user": "a", "human": "a", "gpt": "b"})"})
    EXPECT_EQ(refused(other).find("turn_columns"), std::string::npos) << other;
}

TEST_F(DetectFormat, SaysHowATableIsSeparated) {
  const auto path = folder_.write("d.csv", "prompt;completion\na;b\n");
  EXPECT_EQ(data::detect_format(path, {}, modules::registry().formats).why,
            "d.csv has the fields \"prompt\", \"completion\", separated by ';'");
}

TEST_F(DetectFormat, OfADamagedFileSaysWhatIsWrongWithIt) {
  EXPECT_NE(refused("{\"prompt\": ").find("d.jsonl:1:"), std::string::npos);
  EXPECT_NE(refused("").find("is empty"), std::string::npos);
}

TEST_F(DetectFormat, FollowsMappedColumnsAndTemplates) {
  data::Columns columns;
  columns.mapped = {{"instruction", "question"}, {"output", "answer"}};
  EXPECT_EQ(found(R"({"question": "a", "answer": "b"})", columns), "alpaca");
  columns.mapped = {{"prompt", "question"}, {"completion", "answer"}};
  EXPECT_EQ(found(R"({"question": "a", "answer": "b"})", columns), "completion");
  columns.mapped = {{"text", "body"}};
  EXPECT_EQ(found(R"({"prompt": "a", "body": "b"})", columns), "text");
  columns.mapped = {{"messages", "talk"}};
  EXPECT_EQ(found(R"({"talk": [{"role": "user", "content": "a"}]})", columns), "messages");
  columns.mapped = {{"completion", "answer"}};
  columns.prompt_template = "{{ question }}";
  EXPECT_EQ(found(R"({"question": "a", "answer": "b"})", columns), "completion");
  columns.mapped.clear();
  EXPECT_EQ(found(R"({"instruction": "a", "output": "b"})", columns), "alpaca");
  columns.answer_template = "{{ choices[right] }}";
  EXPECT_EQ(found(R"({"question": "a", "choices": ["b"], "right": 0})", columns), "completion");
}

TEST_F(DetectFormat, ReadsTablesAsRecords) {
  EXPECT_EQ(found("a.csv", "instruction,input,output\na,,b\n"), "alpaca");
  EXPECT_EQ(found("b.tsv", "prompt\tcompletion\na\tb\n"), "completion");
  EXPECT_EQ(found("c.csv", "text\n\"a\nb\"\n"), "text");
  data::Columns columns;
  columns.mapped = {{"prompt", "question"}, {"completion", "answer"}};
  EXPECT_EQ(found("d.csv", "question,answer\n1,2\n", columns), "completion");
}

}  // namespace
}  // namespace finetune::tests::detect_test
