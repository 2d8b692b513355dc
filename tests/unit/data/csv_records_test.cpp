// SPDX-License-Identifier: Apache-2.0
#include "data/records/detail/csv_records.hpp"

#include <gtest/gtest.h>

#include "data/records/decompress.hpp"
#include "support/folders.hpp"
#include "unit/data/fake.hpp"

namespace finetune::data::csv_records_test {
namespace {

using tests::refusal;
using tests::TemporaryFolder;
using Rows = std::vector<std::vector<std::string>>;

Rows rows_of(const std::filesystem::path& path, char separator) {
  const core::File file(path, core::File::Mode::read);
  Rows rows;
  Cursor cursor(file);
  skip_to_rows(cursor);
  const NextEntry next = csv_rows(separator);
  while (cursor.peek() != end_of_file)
    rows.push_back(split_row(read_entry(file, next(cursor)), separator));
  return rows;
}

std::string refusal_of(std::string_view text, const std::string& name = "d.csv") {
  return tests::refusal_of_records(name, text);
}

TEST(Tables, HaveTheRowsThatPythonReads) {
  const auto tables =
      core::read_json(tests::source_folder() / "tests/golden/data/tables.json", 1 << 20);
  ASSERT_GE(tables.size(), 400u);
  int num_refused = 0;
  for (const auto& table : tables) {
    const TemporaryFolder folder;
    const char separator = table.at("separator").get<std::string>().at(0);
    const auto path =
        folder.write(separator == ',' ? "d.csv" : "d.tsv", table.at("text").get<std::string>());
    const bool has_rows = !table.at("rows").is_null() && table.at("rows").size() > 1;
    if (!has_rows) {
      ++num_refused;
      EXPECT_NE(refusal([&] { open_records(path)->size(); }), "nothing thrown") << table;
      continue;
    }
    EXPECT_EQ(rows_of(path, separator), table.at("rows").get<Rows>()) << table;
  }
  EXPECT_GT(num_refused, 50);
}

TEST(Tables, AreRecordsOfTheColumnsThatTheFirstRowNames) {
  const TemporaryFolder folder;
  const auto path = folder.write("d.csv",
                                 "\xEF\xBB\xBFquestion,answer\r\n"
                                 "\"two\nlines, \"\"quoted\"\"\",2\r\n"
                                 "\r\n"
                                 "last,\"\"");
  const auto records = open_records(path);
  ASSERT_EQ(records->size(), 2);
  EXPECT_EQ(records->object(0),
            (OrderedJson{{"question", "two\nlines, \"quoted\""}, {"answer", "2"}}));
  EXPECT_EQ(records->object(1).dump(), R"({"question":"last","answer":""})");
  EXPECT_EQ(records->where(0), path.string() + ":2");
  EXPECT_EQ(records->where(1), path.string() + ":5");
  EXPECT_EQ(open_first_records(path, 1)->size(), 1);
}

TEST(Tables, OfTabsHoldCommas) {
  const TemporaryFolder folder;
  const auto records = open_records(folder.write("d.tsv", "a\tb\n1,2\t\"x\ty\"\n5\" pipe\tz\n"));
  EXPECT_EQ(records->object(0), (OrderedJson{{"a", "1,2"}, {"b", "x\ty"}}));
  EXPECT_EQ(records->object(1), (OrderedJson{{"a", "5\" pipe"}, {"b", "z"}}));
}

TEST(Tables, AreSeparatedByWhatTheNamesAreSeparatedBy) {
  const TemporaryFolder folder;
  const auto read = [&](const char* text) { return open_records(folder.write("d.csv", text)); };
  for (const char separator : {';', '|', '\t'}) {
    std::string text = "frage;\"antwort, kurz\";n\n1,5;\"x;y\";3\n";
    std::ranges::replace(text, ';', separator);
    const auto records = read(text.c_str());
    const std::string quoted = std::string("x") + separator + "y";
    EXPECT_EQ(records->object(0),
              (OrderedJson{{"frage", "1,5"}, {"antwort, kurz", quoted}, {"n", "3"}}));
    EXPECT_TRUE(records->note().starts_with("separated by ")) << records->note();
  }
  EXPECT_EQ(read("a;b\n1;2\n")->note(), "separated by ';'");
  EXPECT_EQ(read("a;b,c\n1;2,3\n")->object(0), (OrderedJson{{"a;b", "1;2"}, {"c", "3"}}));
  EXPECT_EQ(read("text\n1;2\n")->object(0), (OrderedJson{{"text", "1;2"}}));
  EXPECT_EQ(read("a,b\n1,2\n")->note(), "");
  const auto tabs = open_records(folder.write("d.tsv", "a;b\tc\n1\t2\n"));
  EXPECT_EQ(tabs->object(0), (OrderedJson{{"a;b", "1"}, {"c", "2"}}));
  const auto another = read("a;b\n1;2\n3;4\n");
  const std::string index = another->index();
  const auto adopted = read("a;b\n1;2\n3;4\n");
  adopted->adopt(index);
  EXPECT_EQ(adopted->object(1), (OrderedJson{{"a", "3"}, {"b", "4"}}));
}

TEST(Tables, NameTheSeparatorWhereARowHasOtherFields) {
  EXPECT_EQ(refusal_of("a:b\n1,2\n"),
            "65: d.csv:2: the row has 2 fields (the first row names 1 column, separated by ','). "
            "Put a text that holds the separator or a line end between quotes; tables are "
            "separated by commas, semicolons, | or tabs.");
}

TEST(Tables, AreReadFromEitherSideOfABuffer) {
  const TemporaryFolder folder;
  std::string text = "n,text\n";
  for (int i = 0; i < 3000; ++i)
    text +=
        std::to_string(i) + ",\"" + std::string(1000, 'x') + "\n\"\"" + std::to_string(i) + "\"\n";
  const auto records = open_records(folder.write("d.csv", text));
  ASSERT_EQ(records->size(), 3000);
  for (const std::int64_t i : {0, 1039, 1040, 1041, 1042, 2999}) {
    EXPECT_EQ(records->object(i).at("text"), std::string(1000, 'x') + "\n\"" + std::to_string(i));
    EXPECT_TRUE(records->where(i).ends_with(":" + std::to_string(2 + 2 * i)));
  }
}

TEST(Tables, ThatAreBrokenSayWhere) {
  EXPECT_EQ(refusal_of("a,b\n1,\"x\" y\n"),
            "65: d.csv:2: column 6: text stands behind a closing quote (a quote within quotes is "
            "written twice). Correct the row.");
  EXPECT_EQ(refusal_of("a,b\n1,2\n\n3,\"x\ny,4\n"),
            "65: d.csv:4: the quote that opens here does not close (the file ends before). Add the "
            "quote, or copy the file again if it is truncated.");
  EXPECT_EQ(refusal_of("a,b\n1,2\n1,2,3\n"),
            "65: d.csv:3: the row has 3 fields (the first row names 2 columns, separated by ','). "
            "Put a text that holds the separator or a line end between quotes; tables are "
            "separated by commas, semicolons, | or tabs.");
  EXPECT_EQ(refusal_of("a,a\n1,2\n"),
            "65: d.csv:1: two columns are called \"a\" (the first row has the names of the "
            "columns). Give each a name of its own; a file without names gets such a row.");
  EXPECT_EQ(refusal_of("a,b\n1,\xFF\n"),
            "65: d.csv:2: byte 0xff is not valid UTF-8 (tables are read as UTF-8). Convert the "
            "file, for example with iconv.");
  EXPECT_EQ(refusal_of(std::string_view("a,b\n\"x\n\0\",2\n", 12)),
            "65: d.csv:3: holds a byte of value 0 (UTF-16 and binary files do). Convert the file "
            "to UTF-8.");
  EXPECT_EQ(refusal_of("a,b\n"),
            "65: d.csv: has no row below its names (it holds no record). Is it the right file?");
  EXPECT_EQ(refusal_of(""), "65: d.csv: is empty (it holds no record). Is it the right file?");
}

}  // namespace
}  // namespace finetune::data::csv_records_test
