// SPDX-License-Identifier: Apache-2.0
#include "data/records/detail/mds_records.hpp"

#include <gtest/gtest.h>

#include "data/records/detail/mds_values.hpp"
#include "data/text/detail/split_files.hpp"
#include "support/folders.hpp"
#include "unit/data/fake.hpp"

namespace finetune::data::mds_records_test {
namespace {

namespace fs = std::filesystem;
using tests::TemporaryFolder;

const fs::path golden = tests::source_folder() / "tests/golden/data";

/// What choose_split finds in a folder, one after the other.
std::vector<core::Json> all_of(const fs::path& folder) {
  std::vector<core::Json> samples;
  for (const fs::path& file : choose_split(folder, record_endings()).chosen) {
    const auto records = open_records(file);
    for (std::int64_t i = 0; i < records->size(); ++i)
      samples.push_back(records->object(i));
  }
  return samples;
}

TEST(Mds, SamplesAreThoseOfItsReader) {
  const core::Json expected = core::Json::parse(tests::file_text(golden / "mds.json"));
  for (const char* name : {"texts", "zstd", "gz", "tokens", "bytes"}) {
    const auto samples = all_of(golden / (std::string("mds-") + name));
    ASSERT_EQ(samples.size(), expected[name].size()) << name;
    for (std::size_t i = 0; i < samples.size(); ++i)
      EXPECT_EQ(samples[i], expected[name][i]) << name << " " << i;
  }
  const auto path = golden / "mds-texts/shard.00000.mds";
  EXPECT_EQ(open_records(path)->where(2), path.string() + ": sample 3");
}

TEST(Mds, AShardThatIsThereTwiceIsReadOnce) {
  const TemporaryFolder folder;
  fs::copy(golden / "mds-texts", folder.path(), fs::copy_options::recursive);
  folder.write("shard.00000.mds.zstd", "not looked at");
  EXPECT_EQ(all_of(folder.path()).size(), 5u);
}

TEST(Mds, RefusesAFolderThatIsNotWhole) {
  const TemporaryFolder folder;
  fs::copy(golden / "mds-zstd", folder.path(), fs::copy_options::recursive);
  fs::remove(folder.path() / "shard.00002.mds.zstd");
  const std::string refused = tests::refusal([&] { all_of(folder.path()); }, folder.path());
  EXPECT_TRUE(refused.starts_with("65: index.json: shard 2 of 3 is not there (") ||
              refused.starts_with("65: index.json: shard 2 of 4 is not there ("))
      << refused;
  EXPECT_TRUE(refused.ends_with("Copy the whole folder."));
  folder.write("shard.00002.mds.zstd", "x");
  EXPECT_TRUE(tests::refusal([&] { all_of(folder.path()); }, folder.path())
                  .starts_with("65: shard.00002.mds.zstd: has 1 bytes (index.json says "));
  folder.write("index.json", R"({"shards": [{"raw_data": {"basename": "../x", "bytes": 1}}]})");
  EXPECT_EQ(tests::refusal([&] { all_of(folder.path()); }, folder.path()),
            "65: index.json: names a file of another folder (shards lie beside it). Copy or write "
            "it again.");
}

TEST(Mds, RefusesAFolderWithoutItsFirstShard) {
  const TemporaryFolder folder;
  fs::copy(golden / "mds-zstd", folder.path(), fs::copy_options::recursive);
  fs::remove(folder.path() / "shard.00000.mds.zstd");
  const std::string refused = tests::refusal([&] { all_of(folder.path()); }, folder.path());
  EXPECT_TRUE(refused.starts_with("65: index.json: shard 0 of 4 is not there (")) << refused;
}

TEST(Mds, RefusesAFolderWithoutItsIndex) {
  const TemporaryFolder folder;
  fs::copy(golden / "mds-zstd", folder.path() / "d", fs::copy_options::recursive);
  fs::remove(folder.path() / "d/index.json");
  const std::string expected =
      "65: d: has shards of MDS but no index.json (without it nobody would notice a shard that is "
      "missing). Copy the whole folder; if it came without, streaming.base.util.merge_index or the "
      "program that wrote it writes one.";
  EXPECT_EQ(tests::refusal([&] { all_of(folder.path() / "d"); }, folder.path()), expected);
  fs::remove(folder.path() / "d/shard.00000.mds.zstd");
  EXPECT_EQ(tests::refusal([&] { all_of(folder.path() / "d"); }, folder.path()), expected)
      << "the first of all may be missing, too";
}

std::string refusal_of(std::string bytes) {
  return tests::refusal_of_records("d.mds", bytes);
}

TEST(Mds, RefusesWhatIsNoShard) {
  const std::string shard = tests::file_text(golden / "mds-texts/shard.00000.mds");
  EXPECT_EQ(refusal_of("abc"),
            "65: d.mds: cannot be read as an MDS shard (it has 3 bytes, too few for 0 samples). "
            "Copy or write it again.");
  EXPECT_EQ(refusal_of(shard.substr(0, 700)),
            "65: d.mds: has 700 bytes (its samples end at byte 813, so it is truncated or "
            "something else). Copy or write it again.");
  std::string other = shard;
  other[8] = '\x7f';
  EXPECT_EQ(refusal_of(other),
            "65: d.mds: sample 1: its columns are longer than itself (the shard is damaged). Copy "
            "or write it again.");
  EXPECT_EQ(refusal_of(shard.substr(0, 0) + std::string(4, '\0') + "\x08" + std::string(3, '\0')),
            "65: d.mds: has no samples (it holds no record). Is it the right file?");
  other = shard;
  other[0x1c] = '[';
  EXPECT_TRUE(refusal_of(other).starts_with("65: d.mds")) << refusal_of(other);
}

std::string value_of(const std::string& encoding, std::string_view bytes) {
  try {
    const auto value =
        mds_value(encoding, std::as_bytes(std::span(bytes.data(), bytes.size())), "v");
    return value ? value->dump() : "none";
  } catch (const core::Error& error) {
    return error.what();
  }
}

TEST(Mds, ValuesAreCheckedAgainstTheirEncoding) {
  EXPECT_EQ(value_of("pil", "x"), "none");
  EXPECT_EQ(value_of("ndarray:float16:1", "ab"), "none");
  EXPECT_EQ(value_of("str_int", "-12"), "-12");
  EXPECT_EQ(value_of("str_float", "0.25"), "0.25");
  EXPECT_EQ(value_of("str_decimal", "0.10"), "\"0.10\"");
  EXPECT_EQ(value_of("ndarray:uint8:2", "ab"), "[97,98]");
  const std::string damaged = " (the file is damaged). Copy or write it again.";
  EXPECT_EQ(value_of("str", "\xff"), "v: byte 1 is not valid UTF-8" + damaged);
  EXPECT_EQ(value_of("int", "x"), "v: a number has 1 bytes" + damaged);
  EXPECT_EQ(value_of("str_int", "x"), "v: is no number" + damaged);
  EXPECT_EQ(value_of("ndarray", ""), "v: the array ends early" + damaged);
  EXPECT_EQ(value_of("ndarray", "\x01"), "v: the array's numbers are of no type" + damaged);
  EXPECT_EQ(value_of("ndarray:int32",
                     "\x04\x02"
                     "abcd"),
            "v: the array has not as many numbers as its shape" + damaged);
  EXPECT_EQ(value_of("ndarray:int32:x", "abcd"),
            "v: the shape of its arrays is no list of numbers" + damaged);
}

}  // namespace
}  // namespace finetune::data::mds_records_test
