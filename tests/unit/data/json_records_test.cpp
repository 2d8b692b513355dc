// SPDX-License-Identifier: Apache-2.0
#include "data/records/detail/json_records.hpp"

#include <gtest/gtest.h>

#include "core/random.hpp"
#include "data/records/fields.hpp"
#include "unit/data/fake.hpp"

namespace finetune::data::json_records_test {
namespace {

using tests::refusal;
using tests::TemporaryFolder;

std::string refusal_of(std::string_view content) {
  return tests::refusal_of_records("d.json", content);
}

bool begins(const std::string& text, const std::string& start) {
  return text.starts_with(start);
}

TEST(JsonRecords, ReadsLinesAndPassesOverBlankOnes) {
  const TemporaryFolder folder;
  const JsonRecords records(folder.write("d.jsonl", "{\"a\": 1}\n\n  \r\n{\"a\": 2}\r\n{\"a\":3}"));
  ASSERT_EQ(records.size(), 3);
  EXPECT_EQ(records.object(1)["a"], 2);
  EXPECT_EQ(records.object(2)["a"], 3);
  EXPECT_EQ(records.where(1), (folder.path() / "d.jsonl").string() + ":4");
}

TEST(JsonRecords, ReadsAnArrayAndKnowsEachEntrysLine) {
  const TemporaryFolder folder;
  const JsonRecords records(
      folder.write("d.json", "\n[ {\"a\": \"]},{[\\\"\"},\n  {\"a\":\n {\"b\": [2]}}\n,{}\n]\n"));
  ASSERT_EQ(records.size(), 3);
  EXPECT_EQ(records.object(0)["a"], "]},{[\"");
  EXPECT_EQ(records.object(1)["a"]["b"][0], 2);
  EXPECT_TRUE(records.where(0).ends_with("d.json:2: entry 1")) << records.where(0);
  EXPECT_TRUE(records.where(1).ends_with("d.json:3: entry 2")) << records.where(1);
  EXPECT_TRUE(records.where(2).ends_with("d.json:5: entry 3")) << records.where(2);
}

TEST(JsonRecords, PassesOverAByteOrderMark) {
  const TemporaryFolder folder;
  EXPECT_EQ(JsonRecords(folder.write("a.json", "\xEF\xBB\xBF[{\"a\": 1}]")).object(0)["a"], 1);
  EXPECT_EQ(JsonRecords(folder.write("b.json", "\xEF\xBB\xBF{\"a\": 1}")).object(0)["a"], 1);
}

TEST(JsonRecords, ReadsEntriesAcrossItsBuffersEdge) {
  const TemporaryFolder folder;
  const std::string filler(700'000, 'x');
  const std::string entry = "{\"a\": \"" + filler + "\"}";
  const JsonRecords records(folder.write("d.json", "[" + entry + ",\n" + entry + ",\n{\"a\": 3}]"));
  ASSERT_EQ(records.size(), 3);
  EXPECT_EQ(records.object(1)["a"], filler);
  EXPECT_EQ(records.object(2)["a"], 3);
  EXPECT_TRUE(records.where(2).ends_with(":3: entry 3"));
}

TEST(JsonRecords, RefusesAFileWithoutEntries) {
  EXPECT_EQ(refusal_of(""), "65: d.json: is empty (it holds no record). Is it the right file?");
  EXPECT_TRUE(begins(refusal_of(" \n\n"), "65: d.json: has no entries"));
  EXPECT_TRUE(begins(refusal_of("[ ]"), "65: d.json: has no entries"));
}

TEST(JsonRecords, NamesLineAndColumnOfBrokenJson) {
  EXPECT_TRUE(begins(refusal_of("{\"a\": 1}\n{\"a\" 2}\n"), "65: d.json:2:6: broken JSON ("))
      << refusal_of("{\"a\": 1}\n{\"a\" 2}\n");
  // An entry that begins inside a line: the column still counts from the line's start.
  EXPECT_TRUE(begins(refusal_of("[\n  {\"a\": 1}, {\"a\" 2}\n]"), "65: d.json:2:18: broken JSON ("))
      << refusal_of("[\n  {\"a\": 1}, {\"a\" 2}\n]");
  EXPECT_TRUE(begins(refusal_of("[\n{\"a\":\n oops}\n]"), "65: d.json:3:2: broken JSON ("))
      << refusal_of("[\n{\"a\":\n oops}\n]");
}

TEST(JsonRecords, SaysHowRecordsLieInAFileWhereOneTakesSeveralLines) {
  const std::string advice = " A file holds one record per line, or one list of records.";
  const std::string text = refusal_of("{\n  \"a\": 1\n}\n");
  EXPECT_TRUE(begins(text, "65: d.json:1:2: broken JSON (")) << text;
  EXPECT_TRUE(text.ends_with(advice)) << text;
  EXPECT_FALSE(refusal_of("{\"a\" 2}\n").ends_with(advice));
  EXPECT_FALSE(refusal_of("[{\"a\":").ends_with(advice));
}

TEST(JsonRecords, NamesThePlaceWhereAnArrayIsBroken) {
  EXPECT_EQ(refusal_of("[{\"a\": 1}\n {\"a\": 2}]"),
            "65: d.json:2:2: broken JSON ('{' stands where ',' or ']' should). Correct the file "
            "there.");
  EXPECT_EQ(
      refusal_of("[{},\n]"),
      "65: d.json:2:1: broken JSON (']' stands where an entry should). Correct the file there.");
  EXPECT_EQ(refusal_of("[{}}]"),
            "65: d.json:1:4: broken JSON ('}' stands where ',' or ']' should). Correct the file "
            "there.");
  EXPECT_EQ(
      refusal_of("[{}] {}"),
      "65: d.json:1:6: broken JSON ('{' stands where the end of the file should). Correct the "
      "file there.");
}

TEST(JsonRecords, NoticesATruncatedArray) {
  EXPECT_EQ(refusal_of("[{\"a\": 1},\n{\"a\": 2}\n"),
            "65: d.json:3:1: broken JSON (the file ends where ',' or ']' should). The file may be "
            "truncated; copy or download it again.");
  EXPECT_TRUE(begins(refusal_of("[{\"a\": 1},\n{\"a\": \"tw"), "65: d.json:2:"))
      << refusal_of("[{\"a\": 1},\n{\"a\": \"tw");
  EXPECT_TRUE(begins(refusal_of("[{\"a\": 1},\n{\"a\": \"two\\"), "65: d.json:2:"));
  EXPECT_TRUE(begins(refusal_of("[{},\n[1, 2"), "65: d.json:2:"));
  EXPECT_TRUE(begins(refusal_of("["), "65: d.json:1:2: broken JSON (the file ends where an entry"));
}

TEST(JsonRecords, FindsTheEntryThatLacksItsQuote) {
  // Without the quote the brackets of the rest count for nothing; the parser says where it went.
  const std::string text = refusal_of("[\n{\"a\": \"one},\n{\"a\": \"two\"}\n]");
  EXPECT_TRUE(begins(text, "65: d.json:2:")) << text;
}

TEST(JsonRecords, NamesTheLineOfInvalidUtf8) {
  EXPECT_TRUE(begins(refusal_of("{\"a\": \"ok\"}\n{\"a\": \"\xC3(\"}\n"),
                     "65: d.json:2:8: byte 0xc3 is not valid UTF-8"));
  EXPECT_TRUE(begins(refusal_of("[{},\n  {\"a\": \"\xFF\"}]"),
                     "65: d.json:2:10: byte 0xff is not valid UTF-8"));
}

TEST(JsonRecords, NamesTheLineOfAKeyThatOccursTwice) {
  EXPECT_TRUE(begins(refusal_of("{}\n{\"a\": 1, \"a\": 2}"), "65: d.json:2: JSON key \"a\" occurs"))
      << refusal_of("{}\n{\"a\": 1, \"a\": 2}");
}

TEST(JsonRecords, RefusesNestingDeeperThanTheLimit) {
  const std::string deep = "{\"a\": " + std::string(100'000, '[') + std::string(100'000, ']') + "}";
  EXPECT_TRUE(begins(refusal_of("{}\n" + deep), "65: d.json:2: JSON is nested deeper"));
  EXPECT_TRUE(begins(refusal_of("[" + deep + "]"), "65: d.json:1: entry 1: JSON is nested deeper"));
}

TEST(JsonRecords, RefusesEntriesThatAreNotObjects) {
  EXPECT_EQ(refusal_of("[{}, 12]"),
            "65: d.json:1: entry 2: is a JSON number (a sample is an object, { ... }). Correct or "
            "remove this entry.");
  EXPECT_TRUE(begins(refusal_of("[\"a\"]"), "65: d.json:1: entry 1: is a JSON string"));
  EXPECT_TRUE(begins(refusal_of("{}\nnull\n"), "65: d.json:2: is a JSON null"));
}

TEST(JsonRecords, ReadOrRefuseAnyDamagedFile) {
  const std::string whole =
      "[\n  {\"a\": \"x\\\"y\", \"b\": [1, {\"c\": null}]},\n  {\"d\": -1.5e3}\n]\n";
  const std::string pieces = "{}[]\",:\\\n 1x\xC3";
  const core::RandomKey key(1, core::RandomUse::test);
  int num_refused = 0;
  for (std::uint64_t i = 0; i < 300; ++i) {
    std::string text = whole;
    const std::size_t at = key.below(3 * i, text.size());
    const char piece = pieces[key.below(3 * i + 1, pieces.size())];
    const std::uint64_t damage = key.below(3 * i + 2, 4);
    if (damage == 0) text.erase(at, 1);
    if (damage == 1) text.insert(at, 1, piece);
    if (damage == 2) text[at] = piece;
    if (damage == 3) text.resize(at);
    const std::string outcome = refusal_of(text);
    if (outcome == "nothing thrown") continue;
    ++num_refused;
    EXPECT_TRUE(begins(outcome, "65: d.json:")) << outcome << "\n" << text;
  }
  EXPECT_GT(num_refused, 150);
}

TEST(JsonRecords, RefusesAFileThatIsNotThere) {
  EXPECT_EQ(refusal([] { JsonRecords("no/such.json"); }),
            "65: no/such.json: cannot be opened (No such file or directory). Check the path and "
            "its permissions.");
}

TEST(TextFields, SayWhichFieldIsMissingAndWhatWasMeant) {
  const auto missing = [](const char* object, const char* name) {
    return refusal([&] { text_field(core::Json::parse(object), {name, ""}, "d.json:7"); });
  };
  EXPECT_EQ(missing("{\"outputs\": \"x\"}", "output"),
            "65: d.json:7: field \"output\" is missing (the fields are \"outputs\"). Did you mean "
            "it by \"outputs\"? Rename the field.");
  EXPECT_EQ(missing("{\"question\": \"x\", \"n\": 1}", "output"),
            "65: d.json:7: field \"output\" is missing (the fields are \"n\", \"question\"). Add "
            "it, or choose the data.format of these data.");
  EXPECT_TRUE(begins(missing("{}", "output"),
                     "65: d.json:7: field \"output\" is missing (the object is empty)."));
}

TEST(TextFields, ThatTheDeckChoosesSayWhereItDid) {
  const core::Json object = {{"question", "x"}, {"answer", "y"}};
  const Column chosen{"questoin", "data.prompt_column", true};
  const std::string message =
      "65: d.json:7: field \"questoin\" is missing (the fields are \"answer\", \"question\"). "
      "Did you mean \"question\"? Set data.prompt_column = \"question\".";
  EXPECT_EQ(refusal([&] { text_field(object, chosen, "d.json:7"); }), message);
  EXPECT_EQ(refusal([&] { optional_text_field(object, chosen, "d.json:7"); }), message);
  EXPECT_EQ(refusal([&] {
              text_field(object, {"output", "data.answer_column"}, "d.json:7");
            }),
            "65: d.json:7: field \"output\" is missing (the fields are \"answer\", \"question\"). "
            "Add it, name another one in data.answer_column, or choose the data.format of these "
            "data.");
}

TEST(TextFields, MustBeText) {
  const core::Json object = {{"n", 1}, {"nothing", nullptr}, {"text", "x"}};
  EXPECT_EQ(text_field(object, {"text", ""}, ""), "x");
  EXPECT_EQ(optional_text_field(object, {"text", ""}, ""), "x");
  EXPECT_EQ(optional_text_field(object, {"absent", ""}, ""), "");
  EXPECT_EQ(optional_text_field(object, {"nothing", ""}, ""), "");
  EXPECT_EQ(refusal([&] {
              text_field(object, {"nothing", ""}, "d.json:7");
            }),
            "65: d.json:7: field \"nothing\" is of type null (text is needed). Make it a string.");
  EXPECT_EQ(refusal([&] {
              optional_text_field(object, {"n", ""}, "d.json:7");
            }),
            "65: d.json:7: field \"n\" is of type number (text is needed). Make it a string.");
}

}  // namespace
}  // namespace finetune::data::json_records_test
