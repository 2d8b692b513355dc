// SPDX-License-Identifier: Apache-2.0
#include "data/text/detail/split_files.hpp"

#include <gtest/gtest.h>

#include "unit/data/fake.hpp"

namespace finetune::data::split_files_test {
namespace {

using tests::TemporaryFolder;

using Names = std::vector<std::string>;

Names chosen_in(const TemporaryFolder& folder, const std::string& split = "train") {
  Names names;
  for (const auto& file : choose_split({folder.path(), split}, {".jsonl", ".json"}).chosen)
    names.push_back(file.lexically_relative(folder.path()).string());
  return names;
}

std::string refusal_of(const TemporaryFolder& folder, const std::string& split = "train") {
  return tests::refusal([&] { chosen_in(folder, split); }, folder.path().parent_path());
}

std::string name_of(const TemporaryFolder& folder) {
  return folder.path().filename().string();
}

TEST(SplitNamed, FollowsTheWordsOfTheHub) {
  for (const char* name : {"train.jsonl", "train-00000-of-00002.parquet", "my_train_data.json",
                           "Training.jsonl", "train0.jsonl", "a.train.jsonl.gz"})
    EXPECT_EQ(split_named(name), "train") << name;
  for (const char* name : {"validation-0.json", "valid.json", "val.json", "dev.json"})
    EXPECT_EQ(split_named(name), "validation") << name;
  for (const char* name : {"test.jsonl", "testing.json", "eval.json", "evaluation-1.json"})
    EXPECT_EQ(split_named(name), "test") << name;
  for (const char* name : {"constraints.json", "latest.json", "data.json", "devel.json", ""})
    EXPECT_EQ(split_named(name), "") << name;
}

TEST(SplitNamed, TakesTheWholeNameOfAShardedFile) {
  EXPECT_EQ(split_named("train_sft-00000-of-00003.parquet"), "train_sft");
  EXPECT_EQ(split_named("dev-00000-of-00001-3f2a.parquet"), "validation");
  EXPECT_EQ(split_named("train_sft-0-of-3.parquet"), "train");
}

TEST(SplitNamed, OfSeveralWordsIsNone) {
  EXPECT_EQ(split_named("train_test.json"), "test or train");
}

TEST(ChooseSplit, LeavesOutWhatIsNotForTraining) {
  const TemporaryFolder folder;
  for (const char* name : {"train-1.jsonl", "train-0.jsonl", "test-0.jsonl", "validation.jsonl"})
    folder.write(name, "{}");
  EXPECT_EQ(chosen_in(folder), (Names{"train-0.jsonl", "train-1.jsonl"}));
  EXPECT_EQ(chosen_in(folder, "test"), (Names{"test-0.jsonl"}));
  EXPECT_EQ(chosen_in(folder, "eval"), (Names{"test-0.jsonl"}));
  EXPECT_EQ(chosen_in(folder, "dev"), (Names{"validation.jsonl"}));
  EXPECT_EQ(chosen_in(folder, "all").size(), 4u);
  const SplitFiles files = choose_split(folder.path(), {".jsonl"});
  EXPECT_EQ(files.split, "train");
  EXPECT_EQ(files.others.at("test"), (Names{"test-0.jsonl"}));
  EXPECT_EQ(files.others.at("validation"), (Names{"validation.jsonl"}));
}

TEST(ChooseSplit, TakesAllFilesWhereNoNameTellsASplit) {
  const TemporaryFolder folder;
  folder.write("b.jsonl", "{}");
  folder.write("a.jsonl", "{}");
  folder.write("dataset_infos.json", "{}");
  EXPECT_EQ(chosen_in(folder), (Names{"a.jsonl", "b.jsonl"}));
  EXPECT_EQ(choose_split(folder.path(), {".jsonl"}).split, "");
}

TEST(ChooseSplit, ListsTheFilesWhereItIsNotClear) {
  const TemporaryFolder folder;
  folder.write("train.jsonl", "{}");
  folder.write("more.jsonl", "{}");
  EXPECT_EQ(refusal_of(folder),
            "65: " + name_of(folder) +
                ": it is not clear to which split each of its files belongs (its files are "
                "more.jsonl (no split), train.jsonl (train)). Set data.split to a split that is "
                "there or to \"all\", or name files in data.path.");
}

TEST(ChooseSplit, ListsTheFilesWhereTheSplitIsNotThere) {
  const TemporaryFolder folder;
  folder.write("test.jsonl", "{}");
  EXPECT_EQ(refusal_of(folder),
            "65: " + name_of(folder) +
                ": none of its files is of the split \"train\" (its files are test.jsonl (test)). "
                "Set data.split to a split that is there or to \"all\", or name files in "
                "data.path.");
  const TemporaryFolder other;
  other.write("a.jsonl", "{}");
  EXPECT_NE(refusal_of(other, "test").find("a.jsonl (no split)"), std::string::npos);
}

TEST(ChooseSplit, LooksIntoTheFoldersOfADataSet) {
  const TemporaryFolder folder;
  for (const char* name : {"data", "images"})
    std::filesystem::create_directory(folder.path() / name);
  folder.write("data/train-00000-of-00001.json", "{}");
  folder.write("data/test-00000-of-00001.json", "{}");
  folder.write("images/train.json", "{}");
  EXPECT_EQ(chosen_in(folder), (Names{"data/train-00000-of-00001.json"}));
  const TemporaryFolder other;
  for (const char* name : {"train", "test"})
    std::filesystem::create_directory(other.path() / name);
  other.write("train/a.json", "{}");
  other.write("test/b.json", "{}");
  EXPECT_EQ(chosen_in(other), (Names{"train/a.json"}));
  const TemporaryFolder deeper;
  for (const char* name : {"data/train", "data/test"})
    std::filesystem::create_directories(deeper.path() / name);
  deeper.write("data/train/a.json", "{}");
  deeper.write("data/test/b.json", "{}");
  EXPECT_EQ(chosen_in(deeper), (Names{"data/train/a.json"}));
}

TEST(ChooseSplit, OfValidationTakesTheOnlySplitThatIsNotForTraining) {
  const TemporaryFolder folder;
  folder.write("train.jsonl", "{}");
  folder.write("test.jsonl", "{}");
  const auto files = [&](const std::string& wanted) {
    return choose_split(DataPath::validation(folder.path(), wanted), {".jsonl"});
  };
  EXPECT_EQ(files("validation").split, "test");
  folder.write("validation.jsonl", "{}");
  EXPECT_EQ(files("validation").split, "validation");
  EXPECT_EQ(files("train").split, "train");
  const std::string refused =
      tests::refusal([&] { files("train_sft"); }, folder.path().parent_path());
  EXPECT_NE(refused.find("Set data.validation_split to"), std::string::npos) << refused;
}

}  // namespace
}  // namespace finetune::data::split_files_test
