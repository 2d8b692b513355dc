// SPDX-License-Identifier: Apache-2.0
// Files of more entries than an index keeps places of.
#include "data/records/detail/entry_index.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "data/records/records.hpp"
#include "unit/data/fake.hpp"

namespace finetune::data::entry_index_test {
namespace {

namespace fs = std::filesystem;

// Some blocks more than are remembered.
constexpr std::int64_t many =
    EntryIndex::stride * (static_cast<std::int64_t>(EntryIndex::most_blocks) + 3) + 7;

fs::path write(const std::string& name, const std::string& text) {
  static const tests::TemporaryFolder folder;
  return folder.write(name, text);
}

/// Entry i is {"i": i}, and what stands before it takes lines and columns.
fs::path lines() {
  std::string text = "\xEF\xBB\xBF\n";
  for (std::int64_t i = 0; i < many; ++i)
    text += fmt::format("{}{{\"i\": {}}}\r\n{}", i % 3 == 0 ? "  " : "", i, i % 7 == 0 ? "\n" : "");
  return write("lines.jsonl", text);
}

fs::path array() {
  std::string text = " [";
  for (std::int64_t i = 0; i < many; ++i)
    text += fmt::format("{}{}{{\"i\":\n{}}}", i == 0 ? "" : ",", i % 5 == 0 ? "\n" : " ", i);
  return write("array.json", text + "\n]\n");
}

fs::path table() {
  std::string text = "i,text\n";
  for (std::int64_t i = 0; i < many; ++i)
    text += fmt::format("{},\"two\nlines \"\"{}\"\"\"\n", i, i);
  return write("table.csv", text);
}

std::string number(const Records& records, std::int64_t i) {
  const auto value = records.object(i).at("i");
  return value.is_string() ? value.get<std::string>() : value.dump();
}

/// Forwards, backwards and here and there.
std::vector<std::int64_t> places() {
  std::vector<std::int64_t> all = {0, many - 1, 1, many - 2};
  for (std::int64_t i = 0; i < many; i += 97)
    all.push_back(i);
  for (std::int64_t i = many - 1; i >= 0; i -= 101)
    all.push_back(i);
  for (std::int64_t i = 0; i < 200; ++i)
    all.push_back(i * 7919 % many);
  return all;
}

class EntriesOf : public testing::TestWithParam<fs::path (*)()> {};

TEST_P(EntriesOf, AFileAreFoundAgainFromPlacesBefore) {
  const auto records = open_records(GetParam()());
  ASSERT_EQ(records->size(), many);
  for (const std::int64_t i : places())
    ASSERT_EQ(number(*records, i), std::to_string(i)) << records->where(i);
}

TEST_P(EntriesOf, AFileAreWhereAnotherProcessFoundThem) {
  const fs::path path = GetParam()();
  const auto first = open_records(path);
  const auto second = open_records(path);
  const std::string index = first->index();
  EXPECT_LT(std::ssize(index), many);
  second->adopt(index);
  ASSERT_EQ(second->size(), many);
  for (const std::int64_t i : places()) {
    ASSERT_EQ(number(*second, i), std::to_string(i));
    ASSERT_EQ(second->where(i), first->where(i));
  }
}

TEST_P(EntriesOf, AFileAreReadAgainAfterItWasLetGo) {
  const auto records = open_records(GetParam()());
  EXPECT_EQ(number(*records, many - 1), std::to_string(many - 1));
  records->release();
  EXPECT_EQ(number(*records, 5), "5");
  records->release();
  EXPECT_EQ(records->size(), many);
}

TEST_P(EntriesOf, AFileAreNotTakenFromWhatIsNoIndex) {
  const auto records = open_records(GetParam()());
  const std::string index = records->index();
  for (const std::string& none : {std::string(), index.substr(0, 9), index + "x"})
    EXPECT_THROW(records->adopt(none), core::Error);
  EXPECT_EQ(records->size(), many);
}

TEST_P(EntriesOf, AFileAreReadByThreads) {
  const auto records = open_records(GetParam()());
  std::vector<std::int64_t> wrong(4);
  {
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < wrong.size(); ++t)
      threads.emplace_back([&, t] {
        for (std::int64_t i = static_cast<std::int64_t>(t); i < many; i += 41)
          wrong[t] += number(*records, i) == std::to_string(i) ? 0 : 1;
      });
  }
  EXPECT_EQ(wrong, std::vector<std::int64_t>(4));
}

INSTANTIATE_TEST_SUITE_P(Kinds, EntriesOf, testing::Values(&lines, &array, &table));

TEST(EntryIndex, LinesAndColumnsAreThoseOfTheWholeFile) {
  const auto of_lines = open_records(lines());
  // Line 1 is the mark's; every seventh record is followed by an empty line.
  EXPECT_TRUE(
      of_lines->where(many - 1).ends_with(fmt::format(":{}", 2 + (many - 1) + (many - 1 + 6) / 7)))
      << of_lines->where(many - 1);
  const auto of_table = open_records(table());
  EXPECT_TRUE(of_table->where(1000).ends_with(fmt::format(":{}", 2 + 2 * 1000)));
  const auto of_array = open_records(array());
  EXPECT_TRUE(of_array->where(600).ends_with(fmt::format(":{}: entry 601", 1 + 600 + 600 / 5 + 1)))
      << of_array->where(600);
}

TEST(EntryIndex, WhatIsBrokenFarBehindIsFoundByTheFirstPass) {
  std::string text = "[";
  for (std::int64_t i = 0; i < many; ++i)
    text += "{},\n";
  const auto records = open_records(write("broken.json", text + "}"));
  try {
    (void)records->size();
    FAIL();
  } catch (const core::Error& error) {
    EXPECT_NE(std::string(error.what()).find(fmt::format(":{}:1", many + 1)), std::string::npos)
        << error.what();
  }
  // And again, whoever asks.
  EXPECT_THROW(records->object(0), core::Error);
}

}  // namespace
}  // namespace finetune::data::entry_index_test
