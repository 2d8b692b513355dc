// SPDX-License-Identifier: Apache-2.0
#include "data/records/detail/tar_records.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "support/folders.hpp"
#include "unit/data/fake.hpp"

namespace finetune::data::tar_records_test {
namespace {

using tests::refusal;
using tests::TemporaryFolder;

std::filesystem::path golden(const std::string& format) {
  return tests::source_folder() / "tests/golden/data" / ("samples-" + format + ".tar");
}

/// An archive of one kind of member, as small as can be.
std::string archive(const std::vector<std::pair<std::string, std::string>>& members) {
  std::string bytes;
  for (const auto& [name, text] : members) {
    std::string header(512, '\0');
    const auto put = [&](std::size_t at, const std::string& field) {
      std::ranges::copy(field, header.begin() + static_cast<long>(at));
    };
    char length[12];
    std::snprintf(length, sizeof(length), "%011zo", text.size());
    put(0, name);
    put(124, length);
    put(148, "        ");
    put(156, "0");
    put(257, std::string("ustar\0", 6) + "00");
    unsigned sum = 0;
    for (const char c : header)
      sum += static_cast<unsigned char>(c);
    char checksum[8];
    std::snprintf(checksum, sizeof(checksum), "%06o", sum);
    put(148, checksum);
    bytes += header + text + std::string((512 - text.size() % 512) % 512, '\0');
  }
  return bytes + std::string(1024, '\0');
}

std::string refusal_of(std::string_view bytes) {
  return tests::refusal_of_records("d.tar", bytes);
}

TEST(Archives, HoldTheSameSamplesInEachFormatOfPythons) {
  for (const char* format : {"ustar", "gnu", "pax"}) {
    const auto records = open_records(golden(format));
    ASSERT_EQ(records->size(), 4) << format;
    EXPECT_EQ(records->object(0), (OrderedJson{{"prompt", "1+1="}, {"completion", "2"}}));
    EXPECT_EQ(records->object(1).dump(), R"({"txt":"a caption, é","n":2})");
    EXPECT_EQ(records->object(2), (OrderedJson{{"n", 3}, {"cls", "7"}}));
    EXPECT_EQ(records->object(3).at("text"), std::string(1500, 'x'));
    EXPECT_TRUE(records->where(1).ends_with(": shard/0002")) << records->where(1);
    EXPECT_TRUE(records->where(2).ends_with("letters/0003")) << records->where(2);
    EXPECT_EQ(open_first_records(golden(format), 2)->size(), 2);
  }
}

TEST(Archives, ThatAreBrokenSayWhere) {
  const std::string sample = R"({"a": 1})";
  EXPECT_NE(refusal_of(archive({{"1.json", "{\"a\": }"}})).find("65: d.tar: 1.json:1:"),
            std::string::npos);
  EXPECT_EQ(refusal_of(archive({{"1.json", "[1]"}})),
            "65: d.tar: 1.json: is a JSON array (a sample is an object, { ... }). Correct or "
            "remove this member.");
  EXPECT_EQ(refusal_of(archive({{"1.json", sample}, {"2.json", sample}, {"1.txt", "x"}})),
            "65: d.tar: 1.txt: its sample has begun before, with other members between (members "
            "of a sample lie side by side). Write the archive in the order of names (tar "
            "--sort=name).");
  EXPECT_EQ(refusal_of(archive({{"1.json", R"({"txt": 1})"}, {"1.txt", "x"}})),
            "65: d.tar: 1: has the field \"txt\" twice (a member and a field of another are called "
            "so). Remove one.");
  EXPECT_EQ(refusal_of(archive({{"1.jpg", "x"}})),
            "65: d.tar: has no member that ends in .json (each sample has one). Check data.path.");
}

TEST(Archives, AreRefusedWhereverTheyEndOrChange) {
  const std::string whole = tests::file_text(golden("pax"));
  for (const std::size_t length : {0u, 1u, 511u, 513u, 700u, 2000u})
    EXPECT_NE(refusal_of(whole.substr(0, length)).find("cannot be read as a tar archive"),
              std::string::npos)
        << length;
  const std::string two = archive({{"1.json", R"({"a": 1})"}, {"2.json", R"({"a": 2})"}});
  EXPECT_NE(refusal_of(two.substr(0, 1024)).find("the zeros that end an archive are missing"),
            std::string::npos)
      << "cut off between two members";
  for (const std::size_t at : {0u, 130u, 150u, 160u}) {
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ 4);
    EXPECT_NE(refusal_of(changed).find("at byte 0 there is no header of a member"),
              std::string::npos)
        << at;
  }
}

}  // namespace
}  // namespace finetune::data::tar_records_test
