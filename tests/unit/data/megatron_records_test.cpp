// SPDX-License-Identifier: Apache-2.0
#include "data/records/detail/megatron_records.hpp"

#include <gtest/gtest.h>

#include "support/folders.hpp"
#include "unit/data/fake.hpp"

namespace finetune::data::megatron_records_test {
namespace {

using tests::TemporaryFolder;

const std::filesystem::path golden = tests::source_folder() / "tests/golden/data";

std::string with(std::string bytes, std::size_t at, const std::string& other) {
  return bytes.replace(at, other.size(), other);
}

/// What is said of an index beside the golden tokens, less the folder.
std::string refusal_of(const std::string& index,
                       const std::string& tokens = tests::file_text(golden /
                                                                    "megatron-uint16.bin")) {
  const TemporaryFolder folder;
  folder.write("d.bin", tokens);
  return tests::refusal(
      [&] {
        const auto records = open_records(folder.write("d.idx", index));
        for (std::int64_t i = 0; i < records->size(); ++i)
          records->object(i);
      },
      folder.path());
}

TEST(Megatron, DocumentsAreThoseOfItsReader) {
  const core::Json expected = core::Json::parse(tests::file_text(golden / "megatron.json"));
  for (const char* dtype : {"uint16", "int32"}) {
    const auto path = golden / ("megatron-" + std::string(dtype) + ".idx");
    const auto records = open_records(path);
    ASSERT_EQ(records->size(), std::ssize(expected[dtype]));
    EXPECT_TRUE(records->are_documents());
    for (std::int64_t i = 0; i < records->size(); ++i)
      EXPECT_EQ(core::Json(records->object(i).at("input_ids")),
                expected[dtype][static_cast<std::size_t>(i)]);
    EXPECT_EQ(records->where(1), path.string() + ": document 2");
    EXPECT_EQ(records->files().size(), 2u);
  }
}

TEST(Megatron, EitherFileOrTheBeginningOfTheirNamesNamesBoth) {
  const auto index = golden / "megatron-int32.idx";
  EXPECT_EQ(record_file(golden / "megatron-int32"), index);
  EXPECT_EQ(record_file(golden / "megatron-int32.bin"), index);
  EXPECT_EQ(record_file(index), index);
  const TemporaryFolder folder;
  EXPECT_EQ(record_file(folder.write("alone.bin", "x")), folder.path() / "alone.bin");
  EXPECT_EQ(record_file(folder.path() / "nothing"), folder.path() / "nothing");
}

TEST(Megatron, RefusesWhatIsNoIndex) {
  const std::string index = tests::file_text(golden / "megatron-uint16.idx");
  EXPECT_EQ(refusal_of("MMIDIDX"),
            "65: d.idx: is no index of Megatron-LM (it does not begin as one (MMIDIDX)). Copy or "
            "write it again.");
  EXPECT_EQ(refusal_of(with(index, 9, "\2")),
            "65: d.idx: is of version 2 (only 1 is known). Make it with a released Megatron-LM.");
  EXPECT_EQ(refusal_of(with(index, 17, "\6")),
            "65: d.idx: has numbers of the code 6 (token ids are whole numbers, of the codes 1 to "
            "5 and 8). Copy or write it again.");
  EXPECT_EQ(
      refusal_of(index.substr(0, 100)),
      "65: d.idx: has 100 bytes (7 sequences and 5 documents take 166). Copy or write it again.");
  EXPECT_EQ(
      refusal_of(with(index, 18, std::string(8, '\xff'))),
      "65: d.idx: has 166 bytes (its counts are larger than the file). Copy or write it again.");
}

TEST(Megatron, RefusesTokensThatItsIndexDoesNotKnow) {
  const std::string tokens = tests::file_text(golden / "megatron-uint16.bin");
  EXPECT_EQ(refusal_of(tests::file_text(golden / "megatron-uint16.idx"), tokens + "ab"),
            "65: d.bin: has " + std::to_string(tokens.size() + 2) +
                " bytes (the last sequence of d.idx ends at byte " + std::to_string(tokens.size()) +
                ", so the rest would be left out). Copy both files again, or write the index again "
                "from the tokens.");
}

TEST(Megatron, RefusesAnIndexThatLeadsOutOfItsFiles) {
  const std::string index = tests::file_text(golden / "megatron-uint16.idx");
  const std::string tokens = tests::file_text(golden / "megatron-uint16.bin");
  EXPECT_EQ(refusal_of(index, tokens.substr(0, 20)),
            "65: d.idx: document 4: a sequence of 3 tokens begins at byte 18 (d.bin has 20 bytes). "
            "Copy or write it again.");
  EXPECT_EQ(refusal_of(with(index, 34, std::string(4, '\xff'))),
            "65: d.idx: document 1: a sequence of -1 tokens begins at byte 0 (d.bin has 30 bytes). "
            "Copy or write it again.");
  EXPECT_EQ(
      refusal_of(with(index, 34 + 12 * 7 + 8, "\x09")),
      "65: d.idx: document 1: its sequences are 0 to 9 (there are 7). Copy or write it again.");
  const TemporaryFolder folder;
  EXPECT_EQ(tests::refusal([&] { open_records(folder.write("d.idx", index)); }, folder.path()),
            "65: d.idx: there is no d.bin beside it (the index alone has no tokens). Copy both "
            "files.");
}

}  // namespace
}  // namespace finetune::data::megatron_records_test
