// SPDX-License-Identifier: Apache-2.0
#include "data/records/detail/parquet_records.hpp"

#include <gtest/gtest.h>

#include "support/folders.hpp"
#include "unit/data/fake.hpp"

namespace finetune::data::parquet_records_test {
namespace {

namespace fs = std::filesystem;

const fs::path golden = tests::source_folder() / "tests/golden/data";

std::unique_ptr<Records> open(const fs::path& path) {
  return std::make_unique<ParquetFileRecords>(core::File(path, core::File::Mode::read));
}

TEST(ParquetFile, RowsAreThoseOfTheLibrary) {
  const core::Json expected = core::Json::parse(tests::file_text(golden / "rows.json"));
  for (const char* way : {"snappy", "plain", "gzip-v2", "zstd-deltas", "lz4-old"}) {
    SCOPED_TRACE(way);
    const fs::path path = golden / ("rows-" + std::string(way) + ".parquet");
    const auto records = open(path);
    ASSERT_EQ(records->size(), std::ssize(expected));
    // Any order is allowed.
    for (std::int64_t i = records->size() - 1; i >= 0; --i)
      ASSERT_EQ(core::Json(records->object(i)), expected[static_cast<std::size_t>(i)]) << i;
    EXPECT_EQ(records->where(6), path.string() + ": row 7");
  }
}

std::string refusal_of(std::string_view bytes) {
  const tests::TemporaryFolder folder;
  return tests::refusal(
      [&] {
        const auto records = open(folder.write("d.parquet", bytes));
        for (std::int64_t i = 0; i < records->size(); ++i)
          records->object(i);
      },
      folder.path());
}

TEST(ParquetFile, RefusesWhatIsNone) {
  EXPECT_EQ(
      refusal_of("PAR1 no PAR0"),
      "65: d.parquet: cannot be read as Parquet (it does not end with PAR1). Copy or download "
      "the file again; it is truncated or something else.");
  EXPECT_EQ(refusal_of("PAR1 some PARE"),
            "65: d.parquet: is encrypted (there is no key). Write it without encryption.");
  EXPECT_EQ(refusal_of("PAR1 no PAR1"),
            "65: d.parquet: cannot be read as Parquet (its description would have 544173600 bytes, "
            "it has 12). Copy or write it again.");
  const std::string file = tests::file_text(golden / "rows-snappy.parquet");
  EXPECT_TRUE(refusal_of(file.substr(0, file.size() / 2))
                  .starts_with("65: d.parquet: cannot be read as Parquet ("));
}

TEST(ParquetFile, EveryDamageIsRefusedOrRead) {
  const std::string file = tests::file_text(golden / "rows-plain.parquet");
  EXPECT_GT(
      tests::expect_damage_refused_or_read(file, 4, file.size() - 8, 397, "d.parquet", refusal_of),
      5u);
}

}  // namespace
}  // namespace finetune::data::parquet_records_test
