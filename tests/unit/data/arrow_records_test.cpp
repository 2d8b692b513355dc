// SPDX-License-Identifier: Apache-2.0
#include "data/records/detail/arrow_records.hpp"

#include <gtest/gtest.h>

#include "data/text/detail/split_files.hpp"
#include "support/folders.hpp"
#include "unit/data/fake.hpp"

namespace finetune::data::arrow_records_test {
namespace {

namespace fs = std::filesystem;

const fs::path golden = tests::source_folder() / "tests/golden/data";

/// What is found for a path, one after the other; backwards, as any order is allowed.
std::vector<core::Json> all_of(const DataPath& where) {
  std::vector<fs::path> files = {where.path};
  if (is_several(where)) files = choose_split(where, record_endings()).chosen;
  std::vector<core::Json> rows;
  for (const fs::path& file : files) {
    const auto records = open_records(file);
    std::vector<core::Json> of_file(static_cast<std::size_t>(records->size()));
    for (std::int64_t i = records->size() - 1; i >= 0; --i)
      of_file[static_cast<std::size_t>(i)] = records->object(i);
    rows.insert(rows.end(), of_file.begin(), of_file.end());
  }
  return rows;
}

void expect_equal(const std::vector<core::Json>& rows, const core::Json& expected) {
  ASSERT_EQ(rows.size(), expected.size());
  for (std::size_t i = 0; i < rows.size(); ++i)
    EXPECT_EQ(rows[i], expected[i]) << i;
}

TEST(Arrow, RowsOfSavedDataSetsAreThoseOfTheLibrary) {
  const core::Json expected = core::Json::parse(tests::file_text(golden / "arrow.json"));
  for (const char* split : {"train", "test"}) {
    SCOPED_TRACE(split);
    const std::string name = std::string("saved-") + split;
    // The whole with its splits, and one of them.
    expect_equal(all_of({golden / "arrow-saved", split}), expected[name]);
    expect_equal(all_of({golden / "arrow-saved" / split, "all"}), expected[name]);
  }
}

TEST(Arrow, RowsOfFeatherFilesAreThoseOfTheLibrary) {
  const core::Json expected = core::Json::parse(tests::file_text(golden / "arrow.json"));
  for (const char* codec : {"uncompressed", "lz4", "zstd"}) {
    SCOPED_TRACE(codec);
    const fs::path path = golden / ("arrow-" + std::string(codec) + ".feather");
    expect_equal(all_of(path), expected[codec]);
    EXPECT_EQ(open_records(path)->where(6), path.string() + ": row 7");
    EXPECT_EQ(open_first_records(path, 3)->size(), 5);  // of a batch all or none
  }
}

std::string refusal_of(std::string_view bytes) {
  return tests::refusal_of_records("d.arrow", bytes);
}

TEST(Arrow, RefusesWhatIsNoArrowFile) {
  EXPECT_EQ(refusal_of("abc"),
            "65: d.arrow: is no Arrow file (it is empty). Copy or write it again.");
  EXPECT_EQ(refusal_of("{\"text\": \"a\"}"),
            "65: d.arrow: is no Arrow file (at byte 4 begins a message of 1702109819 bytes, it has "
            "13). Copy or write it again.");
  const std::string stream =
      tests::file_text(golden / "arrow-saved/test/data-00000-of-00001.arrow");
  EXPECT_TRUE(refusal_of(stream.substr(0, stream.size() - 100))
                  .starts_with("65: d.arrow: is truncated or damaged ("))
      << refusal_of(stream.substr(0, stream.size() - 100));
}

TEST(Arrow, RefusesAStreamThatHasNoEnd) {
  const std::string stream =
      tests::file_text(golden / "arrow-saved/test/data-00000-of-00001.arrow");
  ASSERT_EQ(refusal_of(stream), "nothing thrown");
  const std::string end("\xff\xff\xff\xff\0\0\0\0", 8);
  ASSERT_TRUE(stream.ends_with(end));
  const std::string said = refusal_of(stream.substr(0, stream.size() - end.size()));
  EXPECT_NE(said.find("is truncated (it ends at byte"), std::string::npos) << said;
}

TEST(Arrow, EveryDamageIsRefusedOrRead) {
  const std::string file = tests::file_text(golden / "arrow-uncompressed.feather");
  EXPECT_GT(
      tests::expect_damage_refused_or_read(file, 8, file.size() - 1, 13, "d.arrow", refusal_of),
      20u);
}

}  // namespace
}  // namespace finetune::data::arrow_records_test
