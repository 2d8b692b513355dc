// SPDX-License-Identifier: Apache-2.0
#include "data/text/detail/files.hpp"

#include <gtest/gtest.h>

#include "unit/data/fake.hpp"

namespace finetune::data::files_test {
namespace {

using tests::MemoryReader;
using tests::TemporaryFolder;

/// As many samples as the file has bytes, each with the file's name as text.
std::unique_ptr<SampleReader> open_by_size(const std::filesystem::path& path) {
  return std::make_unique<MemoryReader>(std::vector<std::vector<Segment>>(
      std::filesystem::file_size(path), {{path.filename().string(), true}}));
}

TEST(OpenFiles, ChainsAFoldersFilesByName) {
  const TemporaryFolder folder;
  folder.write("b.txt", "12");
  folder.write("a.txt", "1");
  folder.write("c.txt", "");
  folder.write("d.txt", "1");
  folder.write("z.md", "1234");
  std::filesystem::create_directory(folder.path() / "e.txt");
  const auto reader = open_files(folder.path(), {".txt", ".text"}, open_by_size);
  std::vector<std::string> names;
  for (std::int64_t i = 0; i < reader->size(); ++i)
    names.push_back(reader->sample(i).segments[0].text + " " + reader->sample(i).where);
  EXPECT_EQ(names, (std::vector<std::string>{"a.txt memory:1", "b.txt memory:1", "b.txt memory:2",
                                             "d.txt memory:1"}));
}

TEST(OpenFiles, TakesASingleFileWhateverItsName) {
  const TemporaryFolder folder;
  const auto reader = open_files(folder.write("z.md", "1234"), {".txt"}, open_by_size);
  EXPECT_EQ(reader->size(), 4);
}

TEST(OpenFiles, RefusesAFolderWithoutSuchFiles) {
  const TemporaryFolder folder;
  folder.write("z.md", "1234");
  EXPECT_EQ(tests::refusal(
                [&] {
                  open_files(folder.path(), {".json", ".jsonl"}, open_by_size);
                },
                folder.path().parent_path()),
            "65: " + folder.path().filename().string() +
                ": the folder has no .json or .jsonl file (there is nothing to train on). Check "
                "data.path and data.format.");
}

}  // namespace
}  // namespace finetune::data::files_test
