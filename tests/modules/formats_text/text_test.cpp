// SPDX-License-Identifier: Apache-2.0
#include "formats/text/text.hpp"

#include <gtest/gtest.h>

#include "unit/data/fake.hpp"

namespace finetune::formats::text::text_test {
namespace {

using tests::TemporaryFolder;

std::vector<std::string> read_all(const std::filesystem::path& path) {
  const auto reader = format().open(path, {});
  std::vector<std::string> texts;
  for (std::int64_t i = 0; i < reader->size(); ++i) {
    const data::Sample sample = reader->sample(i);
    EXPECT_EQ(sample.segments.size(), 1u);
    EXPECT_TRUE(sample.segments[0].trained);
    texts.push_back(sample.segments[0].text);
  }
  return texts;
}

std::string refusal_of(const std::string& name, std::string_view content) {
  const TemporaryFolder folder;
  const auto path = folder.write(name, content);
  return tests::refusal([&] { read_all(path); }, folder.path());
}

using Texts = std::vector<std::string>;

TEST(Text, ATextFileIsOneDocumentByteForByte) {
  const TemporaryFolder folder;
  const std::string content = "One.\n\n  Two.\r\n\f\xE2\x82\xAC\n";
  const auto path = folder.write("d.txt", content);
  EXPECT_EQ(read_all(path), Texts{content});
  EXPECT_EQ(format().open(path, {})->sample(0).where, path.string() + ":1");
  EXPECT_EQ(read_all(folder.write("book.md", "x")), Texts{"x"});
  EXPECT_EQ(read_all(folder.write("windows.txt", "\xEF\xBB\xBFx")), Texts{"x"});
}

TEST(Text, EachLineOfAJsonlFileIsADocument) {
  const TemporaryFolder folder;
  EXPECT_EQ(read_all(folder.write("d.jsonl",
                                  "{\"text\": \"a\\nb\", \"url\": \"x\"}\n{\"text\": \"c\"}\n")),
            (Texts{"a\nb", "c"}));
}

TEST(Text, EachEntryOfAJsonArrayIsADocument) {
  const TemporaryFolder folder;
  EXPECT_EQ(read_all(folder.write("d.json", "[{\"text\": \"a\"}, {\"text\": \"b\"}]")),
            (Texts{"a", "b"}));
}

TEST(Text, AFolderIsAllItsFilesByName) {
  const TemporaryFolder folder;
  folder.write("b.txt", "second");
  folder.write("a.txt", "first");
  folder.write("b.bin", "no text");
  EXPECT_EQ(read_all(folder.path()), (Texts{"first", "second"}));
  folder.write("c.jsonl", "{\"text\": \"third\"}");
  EXPECT_EQ(read_all(folder.path()), Texts{"third"}) << "text next to records is a licence, say";
}

TEST(Text, RunsDocumentsOnIntoBlocks) {
  EXPECT_EQ(format().layout, data::Layout::continuous);
}

TEST(Text, RefusesInvalidUtf8WithItsLine) {
  EXPECT_EQ(refusal_of("d.txt", "one\ntwo \xE9t\xE9\n"),
            "65: d.txt:2: byte 0xe9 is not valid UTF-8 (plain text is read as UTF-8). Convert the "
            "file, for example with iconv.");
  EXPECT_TRUE(refusal_of("d.jsonl", "{\"text\": \"a\"}\n{\"text\": \"\xFF\"}")
                  .starts_with("65: d.jsonl:2:11: byte 0xff is not valid UTF-8"));
}

TEST(Text, RefusesBinaryFiles) {
  EXPECT_EQ(refusal_of("d.txt", std::string_view("a\nb\0c", 5)),
            "65: d.txt:2: holds a byte of value 0 (plain text has none; UTF-16 and binary files "
            "do). Convert the file to UTF-8, or remove it.");
}

TEST(Text, RefusesEmptyFiles) {
  EXPECT_EQ(refusal_of("d.txt", ""),
            "65: d.txt: is empty (it holds no text). Is it the right file?");
  EXPECT_EQ(refusal_of("d.jsonl", ""),
            "65: d.jsonl: is empty (it holds no record). Is it the right file?");
}

TEST(Text, RefusesRecordsWithoutText) {
  EXPECT_EQ(refusal_of("d.jsonl", "{\"text\": \"a\"}\n{\"content\": \"b\"}\n"),
            "65: d.jsonl:2: field \"text\" is missing (the fields are \"content\"). Add it, "
            "name another one in data.text_column, or choose the data.format of these data.");
  EXPECT_EQ(refusal_of("d.jsonl", "{\"text\": null}\n"),
            "65: d.jsonl:1: field \"text\" is of type null (text is needed). Make it a string.");
  EXPECT_TRUE(refusal_of("d.jsonl", "{\"text\": \"a\"\n").starts_with("65: d.jsonl:1:13: broken"))
      << refusal_of("d.jsonl", "{\"text\": \"a\"\n");
}

TEST(Text, RefusesAFileThatIsNotThere) {
  EXPECT_EQ(tests::refusal([] { read_all("no/such.txt"); }),
            "65: no/such.txt: cannot be opened (No such file or directory). Check the path and its "
            "permissions.");
}

}  // namespace
}  // namespace finetune::formats::text::text_test
