// SPDX-License-Identifier: Apache-2.0
#include "data/text/detail/split_files.hpp"

#include <gtest/gtest.h>

#include "data/text/listing.hpp"
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

TEST(ChooseSplit, RefusesAFolderThatIsOnlyHalfCopied) {
  const TemporaryFolder folder;
  for (const char* name :
       {"train-00000-of-00003.jsonl", "train-00002-of-00003.jsonl", "test-00000-of-00002.jsonl"})
    folder.write(name, "{}");
  const std::string said = refusal_of(folder, "train");
  EXPECT_NE(said.find("train-00001-of-00003 is missing (there are 2 of 3 such files)"),
            std::string::npos)
      << said;
  folder.write("train-00001-of-00003.jsonl", "{}");
  EXPECT_EQ(chosen_in(folder).size(), 3u) << "nobody asked for the other split";
  // Whoever names files means these.
  const DataPath some(folder.path() / "test-*", "train");
  EXPECT_EQ(choose_split(some, {".jsonl"}).chosen.size(), 1u);
}

TEST(ChooseSplit, NamesTheFilesOfACardThatAreNotThere) {
  const TemporaryFolder folder;
  folder.write("README.md",
               "---\nconfigs:\n- config_name: default\n  data_files: \"a/*.jsonl\"\n---\n");
  folder.write("b.jsonl", "{}");
  const std::string said = refusal_of(folder, "train");
  EXPECT_NE(said.find("has none of the files that its README.md names (data_files are a/*.jsonl)"),
            std::string::npos)
      << said;
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

TEST(ChooseSplit, ReadsFoldersAtAnyDepthInTheOrderOfBytes) {
  const TemporaryFolder folder;
  for (const char* name : {"b/deep/er", "a-b", "a", "__cache__", ".hidden", "model", "run"})
    std::filesystem::create_directories(folder.path() / name);
  for (const char* name :
       {"z.jsonl", "b/deep/er/x.jsonl", "a-b/1.jsonl", "a/2.jsonl", "a/10.jsonl", "B.jsonl",
        "__cache__/c.jsonl", ".hidden/d.jsonl", ".e.jsonl", "model/tokenizer_config.json",
        "model/f.json", "run/starts.jsonl", "run/metrics.jsonl", "notes.txt"})
    folder.write(name, "{}");
  EXPECT_EQ(chosen_in(folder), (Names{"B.jsonl", "a-b/1.jsonl", "a/10.jsonl", "a/2.jsonl",
                                      "b/deep/er/x.jsonl", "z.jsonl"}));
}

TEST(ChooseSplit, TellsTheSplitByTheFileAndElseByTheNearestFolder) {
  const TemporaryFolder folder;
  for (const char* name : {"en/train", "en/test", "de"})
    std::filesystem::create_directories(folder.path() / name);
  for (const char* name :
       {"en/train/a.jsonl", "en/test/a.jsonl", "de/train-1.jsonl", "en/train/validation.jsonl"})
    folder.write(name, "{}");
  EXPECT_EQ(chosen_in(folder), (Names{"de/train-1.jsonl", "en/train/a.jsonl"}));
  EXPECT_EQ(chosen_in(folder, "validation"), (Names{"en/train/validation.jsonl"}));
}

TEST(ChooseSplit, RefusesSeveralKindsAndTheSameFileTwice) {
  const TemporaryFolder folder;
  folder.write("a.jsonl", "{}");
  folder.write("b.json.gz", "{}");
  folder.write("c.csv", "{}");
  const std::string refused = tests::refusal(
      [&] {
        choose_split(folder.path(), {".jsonl", ".json.gz", ".csv"});
      },
      folder.path().parent_path());
  const std::string name = name_of(folder);
  EXPECT_EQ(refused, "65: " + name + ": holds data of several kinds (" + name +
                         "/a.jsonl is JSON, " + name +
                         "/c.csv is CSV). Name those that are meant in data.path, for example \"" +
                         name + "/**/*.csv\".");
  const TemporaryFolder other;
  other.write("a.jsonl", "{}");
  std::filesystem::create_symlink(other.path() / "a.jsonl", other.path() / "b.jsonl");
  EXPECT_NE(refusal_of(other).find("b.jsonl: would be read twice (it is the same file as"),
            std::string::npos);
}

TEST(ChooseSplit, FollowsLinksToFoldersButNoCircles) {
  const TemporaryFolder folder, other;
  other.write("b.jsonl", "{}");
  folder.write("a.jsonl", "{}");
  std::filesystem::create_directory(folder.path() / "sub");
  std::filesystem::create_directory_symlink(folder.path(), folder.path() / "sub/up");
  std::filesystem::create_directory_symlink(other.path(), folder.path() / "sub/other");
  EXPECT_EQ(chosen_in(folder), (Names{"a.jsonl", "sub/other/b.jsonl"}));
}

Names matching(const TemporaryFolder& folder, const std::string& pattern) {
  Names names;
  for (const auto& file : choose_split(folder.path() / pattern, {".jsonl"}).chosen)
    names.push_back(file.lexically_relative(folder.path()).string());
  return names;
}

TEST(Patterns, MatchFilesAsAShellDoes) {
  const TemporaryFolder folder;
  for (const char* name : {"d/e/f", "d/g", ".h"})
    std::filesystem::create_directories(folder.path() / name);
  for (const char* name : {"a1.jsonl", "a2.jsonl", "b1.jsonl", "d/a3.jsonl", "d/e/a4.jsonl",
                           "d/e/f/a5.jsonl", "d/g/b6.jsonl", ".h/a.jsonl", ".a9.jsonl", "x[1].csv"})
    folder.write(name, "{}");
  EXPECT_EQ(matching(folder, "a*.jsonl"), (Names{"a1.jsonl", "a2.jsonl"}));
  EXPECT_EQ(matching(folder, "[ab]1.jsonl"), (Names{"a1.jsonl", "b1.jsonl"}));
  EXPECT_EQ(matching(folder, "?[!1].jsonl"), (Names{"a2.jsonl"}));
  EXPECT_EQ(matching(folder, "d/*/a*.jsonl"), (Names{"d/e/a4.jsonl"}));
  EXPECT_EQ(matching(folder, "**/a*.jsonl"),
            (Names{"a1.jsonl", "a2.jsonl", "d/a3.jsonl", "d/e/a4.jsonl", "d/e/f/a5.jsonl"}));
  EXPECT_EQ(matching(folder, "d/**/[ab]*.jsonl"),
            (Names{"d/a3.jsonl", "d/e/a4.jsonl", "d/e/f/a5.jsonl", "d/g/b6.jsonl"}));
  EXPECT_EQ(matching(folder, "d/**"),
            (Names{"d/a3.jsonl", "d/e/a4.jsonl", "d/e/f/a5.jsonl", "d/g/b6.jsonl"}));
  EXPECT_EQ(matching(folder, ".a*.jsonl"), (Names{".a9.jsonl"}));
  EXPECT_FALSE(is_pattern(folder.path() / "x[1].csv")) << "a file is called so";
  EXPECT_EQ(folder_of_pattern("d/e*/x"), "d");
  EXPECT_EQ(folder_of_pattern("*.jsonl"), ".");
}

TEST(Patterns, ThatMatchNothingSayWhatIsThere) {
  const TemporaryFolder folder;
  folder.write("a.json", "{}");
  EXPECT_EQ(tests::refusal([&] { matching(folder, "*.jsonl"); }, folder.path()),
            "65: *.jsonl: matches no file (in " + folder.path().string() +
                " are a.json). Correct data.path.");
}

constexpr const char* card =
    "---\nlicense: mit\nconfigs:\n- config_name: en\n  data_files:\n  - split: train\n"
    "    path:\n    - en/part-*.jsonl\n    - more/x.jsonl\n  - split: dev\n    path: "
    "en/held.jsonl\n"
    "- config_name: de\n  data_dir: de\n- config_name: fr\n  data_files: fr/*\n---\n# Data\n";

TEST(Cards, SayWhichFilesAreOfWhichDataSetAndSplit) {
  const TemporaryFolder folder;
  for (const char* name : {"en", "de", "more", "fr"})
    std::filesystem::create_directory(folder.path() / name);
  for (const char* name : {"en/part-1.jsonl", "en/part-0.jsonl", "en/held.jsonl", "en/other.jsonl",
                           "more/x.jsonl", "de/test.jsonl", "de/train.jsonl", "fr/f.jsonl"})
    folder.write(name, "{}");
  folder.write("README.md", card);
  const auto files = [&](const std::string& subset, const std::string& split = "train") {
    DataPath where(folder.path(), split);
    where.subset = subset;
    Names names;
    for (const auto& file : choose_split(where, {".jsonl"}).chosen)
      names.push_back(file.lexically_relative(folder.path()).string());
    return names;
  };
  EXPECT_EQ(files("en"), (Names{"en/part-0.jsonl", "en/part-1.jsonl", "more/x.jsonl"}));
  EXPECT_EQ(files("en", "validation"), (Names{"en/held.jsonl"}));
  EXPECT_EQ(files("de"), (Names{"de/train.jsonl"}));
  EXPECT_EQ(files("fr"), (Names{"fr/f.jsonl"}));
  const auto refused = [&](const std::string& subset, const std::string& split = "train") {
    return tests::refusal([&] { files(subset, split); }, folder.path().parent_path());
  };
  EXPECT_EQ(refused(""), "65: " + name_of(folder) +
                             ": it holds several data sets (its README.md lists en, de, fr). Set "
                             "data.subset, for example to \"en\".");
  EXPECT_NE(refused("french").find("there is no data set \"french\" in it"), std::string::npos);
  EXPECT_NE(refused("en", "test").find("none of its files is of the split \"test\""),
            std::string::npos);
  folder.write("README.md",
               std::string(card).replace(std::string(card).find("- config_name: fr"), 0,
                                         "- config_name: d\n  data_dir: de\n"
                                         "  default: true\n"));
  EXPECT_EQ(files(""), (Names{"de/train.jsonl"}));
}

TEST(Cards, OfOneDataSetNeedNoName) {
  const TemporaryFolder folder;
  folder.write("x.jsonl", "{}");
  folder.write("train.jsonl", "{}");
  folder.write("README.md",
               "---\nconfigs:\n- config_name: default\n  data_files:\n    train: x.jsonl\n---\n");
  EXPECT_EQ(chosen_in(folder), (Names{"x.jsonl"}));
  folder.write("README.md", "---\nlicense: [unclosed\n---\nno list of files\n");
  EXPECT_EQ(choose_split({folder.path(), "all"}, {".jsonl"}).chosen.size(), 2u);
}

TEST(Cards, ThatAreBrokenSayWhere) {
  const TemporaryFolder folder;
  folder.write("x.jsonl", "{}");
  const auto refused = [&](const std::string& text) {
    folder.write("README.md", text);
    return tests::refusal([&] { chosen_in(folder); }, folder.path());
  };
  EXPECT_NE(refused("---\na: 1\nconfigs: [\n---\n")
                .find("65: README.md: what it says of its files cannot be read"),
            std::string::npos);
  EXPECT_EQ(refused("---\na: 1\nconfigs: all\n---\n"),
            "65: README.md:3: configs is all (a list of data sets is expected). Correct it, or "
            "name files in data.path, for example \"data/*.jsonl\".");
  EXPECT_NE(refused("---\nconfigs:\n- data_files: x.jsonl\n---\n").find("has no config_name"),
            std::string::npos);
  EXPECT_NE(refused("---\nconfigs:\n- config_name: a\n  data_files: hf://x/y.jsonl\n---\n")
                .find("README.md:4: \"hf://x/y.jsonl\" is no file here"),
            std::string::npos);
  EXPECT_NE(refused("---\nconfigs:\n- config_name: a\n  data_files:\n  - split: train\n---\n")
                .find("names no split or no path"),
            std::string::npos);
}

}  // namespace
}  // namespace finetune::data::split_files_test
