// SPDX-License-Identifier: Apache-2.0
// The token cache on any number of ranks.
#include "data/tokens/detail/cache.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "comm/agree.hpp"
#include "data/tokens/detail/digest_memo.hpp"
#include "data/tokens/detail/file_digest.hpp"
#include "data/tokens/detail/spool.hpp"
#include "data/tokens/load.hpp"
#include "support/ranks.hpp"
#include "unit/data/cache_setup.hpp"

namespace finetune::data::cache_test {
namespace {

namespace fs = std::filesystem;
using tests::CacheSetup;
using tests::FakeSource;
using tests::file_text;
using tests::kept;
using tests::refusal;
using tests::SharedFolder;
using tests::world;

/// One node of all ranks.
DataRanks one_node() {
  return {world(), world()};
}

/// Every rank is a node of its own.
DataRanks many_nodes() {
  return {world(), comm::Communicator()};
}

TEST(TokenCache, HoldsWhatOneRankHasInMemory) {
  for (const Layout layout : {Layout::separate, Layout::continuous}) {
    CacheSetup setup(world());
    setup.layout = layout;
    const std::string expected =
        kept(load({}, setup.source, layout, setup.options, CacheOptions{}));
    const Loaded made = setup.load();
    EXPECT_FALSE(made.was_cached);
    EXPECT_EQ(kept(made), expected);
    setup.source.num_read = 0;
    const Loaded found = setup.load();
    EXPECT_TRUE(found.was_cached);
    EXPECT_EQ(kept(found), expected);
    EXPECT_EQ(setup.source.num_read, 0);
    EXPECT_EQ(tests::cached_in(setup.folder).size(), 1u);
  }
}

TEST(TokenCache, HoldsTheSameWhereRanksSpillToFiles) {
  CacheSetup setup(world());
  const std::string expected =
      kept(load({}, setup.source, setup.layout, setup.options, CacheOptions{}));
  setup.cache.memory_bytes = 100;
  EXPECT_EQ(kept(setup.load()), expected);
  EXPECT_EQ(tests::cached_in(setup.folder).size(), 1u);
}

TEST(TokenCache, IsFoundByAnyNumberOfRanks) {
  CacheSetup setup(world());
  const Loaded made = setup.load();
  const Loaded alone = load({}, setup.source, setup.layout, setup.options, setup.cache);
  EXPECT_TRUE(alone.was_cached);
  EXPECT_EQ(kept(alone), kept(made));
  EXPECT_TRUE(setup.load(many_nodes()).was_cached);
}

TEST(TokenCache, IsMadeAgainWhenAnythingThatDecidesTokensChanges) {
  CacheSetup setup(world());
  setup.load();
  const auto expect_new = [&](const char* what, const auto& change) {
    change();
    EXPECT_FALSE(setup.load().was_cached) << what;
    EXPECT_TRUE(setup.load().was_cached) << what;
  };
  expect_new("data", [&] { setup.folder.write("data.jsonl", "what it says now"); });
  expect_new("settings", [&] { setup.source.name = "another template"; });
  expect_new("length", [&] { setup.options.max_seq_length = 17; });
  expect_new("vocabulary", [&] { setup.options.vocab_size = 1000; });
  expect_new("overlong", [&] { setup.options.on_overlong = OnOverlong::drop; });
  expect_new("masked", [&] { setup.options.on_masked = OnMasked::drop; });
  expect_new("layout", [&] { setup.layout = Layout::continuous; });
  setup.options.limits.duplicates = 0.99;
  EXPECT_TRUE(setup.load().was_cached);
  // A file of the same bytes elsewhere is the same data.
  setup.source.from = {setup.folder.write("moved.jsonl", "what it says now")};
  EXPECT_TRUE(setup.load().was_cached);
}

TEST(TokenCache, IsMadeAgainWhereANameChangesHowTheBytesAreRead) {
  CacheSetup setup(world());
  setup.load();
  for (const char* name : {"data.txt", "data.json", "data.jsonl.gz", "data.parquet"}) {
    setup.source.from = {setup.folder.write(name, "what it says")};
    EXPECT_FALSE(setup.load().was_cached) << name;
    EXPECT_TRUE(setup.load().was_cached) << name;
  }
  // Whatever is not of records is read as one document.
  setup.source.from = {setup.folder.write("README", "what it says")};
  EXPECT_TRUE(setup.load().was_cached);
}

TEST(TokenCache, TakesAnyNumberOfFilesAndAnyLengthOfSettingsAndSample) {
  CacheSetup setup(world(), 3);
  setup.source.from.assign(3000, setup.source.from[0]);
  setup.source.name = std::string(100'000, '\n');
  setup.options.max_seq_length = 4000;
  // Every new line of the sample begins another line where it is shown.
  auto& sample = setup.source.samples[0].tokens;
  sample.ids.assign(4000, '\n');
  sample.labels.assign(4000, '\n');
  for (std::size_t i = 0; i < sample.labels.size(); ++i) {
    if (i / 300 % 2 == 0) sample.labels[i] = not_trained;
  }
  const Loaded made = setup.load();
  EXPECT_FALSE(made.was_cached);
  EXPECT_FALSE(made.cache_file.empty());
  EXPECT_TRUE(made.report.example_text.ends_with("(the rest is left out)"));
  const Loaded found = setup.load();
  EXPECT_TRUE(found.was_cached);
  EXPECT_EQ(kept(found), kept(made));
  setup.source.from.push_back(setup.source.from[0]);
  EXPECT_FALSE(setup.load().was_cached);
  setup.source.name += "x";
  EXPECT_FALSE(setup.load().was_cached);
}

TEST(TokenCache, AppliesLimitsToWhatAnEarlierStartFound) {
  CacheSetup setup(world(), 2);
  setup.source.samples[1] = setup.source.samples[0];
  EXPECT_FALSE(setup.load().was_cached);
  setup.options.limits.duplicates = 0;
  EXPECT_TRUE(refusal([&] { setup.load(); }).starts_with("65: fake:2: the sample equals"));
}

/// The only file of the cache.
fs::path file_of(const CacheSetup& setup) {
  const auto names = tests::cached_in(setup.folder);
  return setup.folder.path() / "cache" / (names.empty() ? "none" : names[0]);
}

/// Changes the cache's file by the root; then it must be made again, and be as it was.
void expect_mended(const CacheSetup& setup, const char* what,
                   const std::function<void(const fs::path&)>& damage) {
  const fs::path path = file_of(setup);
  const std::string sound = file_text(path);
  world().barrier();
  if (world().is_root()) damage(path);
  world().barrier();
  EXPECT_FALSE(setup.load().was_cached) << what;
  EXPECT_TRUE(setup.load().was_cached) << what;
  EXPECT_EQ(file_text(path), sound) << what;
  world().barrier();
}

void overwrite(const fs::path& path, std::int64_t at, char value) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(at);
  file.put(value);
}

TEST(TokenCache, IsMadeAgainWhereItIsDamaged) {
  CacheSetup setup(world());
  setup.load();
  const CacheLayout layout = CacheFile::open(file_of(setup)).layout;
  const std::string bytes = file_text(file_of(setup));
  const auto flip = [&](std::int64_t at) {
    return [&, at](const fs::path& path) {
      overwrite(path, at, static_cast<char>(bytes[static_cast<std::size_t>(at)] ^ 1));
    };
  };
  expect_mended(setup, "a token", flip(layout.tokens_at + 4));
  expect_mended(setup, "the last token", flip(layout.tokens_at + 4 * layout.num_tokens - 1));
  expect_mended(setup, "a bound", flip(layout.bounds_at + 9));
  expect_mended(setup, "targets", flip(layout.targets_at));
  expect_mended(setup, "a digest", flip(layout.digests_at));
  expect_mended(setup, "the description", flip(layout.description_at + 3));
  for (const std::int64_t from_end : {1, 17, 60, 90, 100, 110})
    expect_mended(setup, "the trailer", flip(layout.file_bytes - from_end));
  expect_mended(setup, "a cut file", [](const fs::path& path) { fs::resize_file(path, 1000); });
  expect_mended(setup, "a longer file",
                [&](const fs::path& path) { fs::resize_file(path, bytes.size() + 8); });
  expect_mended(setup, "an empty file", [](const fs::path& path) { fs::resize_file(path, 0); });
}

TEST(TokenCache, IsNotUsedWithValuesThatLieOutside) {
  // Whoever writes into the folder can make the checksums fit; they do not get out of the arrays.
  CacheSetup setup(world());
  setup.load();
  const fs::path path = file_of(setup);
  expect_mended(setup, "a token outside the vocabulary", [&](const fs::path&) {
    CacheFile file = CacheFile::open(path);
    std::vector<PackedToken> tokens(file.arrays.tokens.begin(), file.arrays.tokens.end());
    tokens[5] = PackedToken(100'000, true);
    core::File(path, core::File::Mode::write_existing)
        .write_at(file.layout.tokens_at, std::as_bytes(std::span(tokens)));
    const CacheBlocks blocks(map_arrays(path, file.layout));
    std::vector<core::Digest> digests;
    for (std::int64_t i = 0; i < blocks.size(); ++i)
      digests.push_back(blocks.digest(i));
    complete_cache_file(path, file.layout, digests, file.description);
  });
}

TEST(TokenCache, WhereAFolderCannotBeMadeTokensStayInMemory) {
  CacheSetup setup(world());
  setup.cache.folder = setup.folder.write("file", "") / "cache";
  const Loaded loaded = setup.load();
  EXPECT_TRUE(loaded.cache_file.empty());
  EXPECT_EQ(loaded.dataset.num_samples(), 41);
  setup.cache.is_required = true;
  EXPECT_TRUE(refusal([&] { setup.load(); }).starts_with("73: "));
}

TEST(TokenCache, WhereAFolderTakesNoFilesTokensOfAnySizeStayInMemory) {
  CacheSetup setup(world());
  const std::string expected =
      kept(load({}, setup.source, setup.layout, setup.options, CacheOptions{}));
  setup.cache.folder = "/sys/kernel";  // where not even root makes files
  bool takes_files = !fs::is_directory(setup.cache.folder);
  try {
    nameless_file(setup.cache.folder);
    takes_files = true;
  } catch (const core::Error&) {
  }
  if (takes_files) GTEST_SKIP() << "needs a folder that takes no files";
  for (const std::int64_t bytes : {std::int64_t{1} << 20, std::int64_t{100}}) {
    setup.cache.memory_bytes = bytes;
    setup.cache.is_required = false;
    const Loaded loaded = setup.load();
    EXPECT_TRUE(loaded.cache_file.empty());
    EXPECT_EQ(kept(loaded), expected);
    setup.cache.is_required = true;
    EXPECT_TRUE(refusal([&] { setup.load(); }).starts_with("73: "));
  }
}

TEST(TokenCache, WhereNodesDoNotShareTheFolderTokensStayInMemory) {
  if (world().size() == 1) GTEST_SKIP() << "needs more than one rank";
  CacheSetup setup(world());
  // The same name, another folder: as a local disk has it.
  setup.cache.folder = setup.folder.path() / ("cache" + std::to_string(world().rank()));
  std::error_code ignored;
  fs::create_directories(setup.cache.folder, ignored);
  const std::string expected =
      kept(load({}, setup.source, setup.layout, setup.options, CacheOptions{}));
  const Loaded loaded = setup.load(many_nodes());
  EXPECT_TRUE(loaded.cache_file.empty());
  EXPECT_EQ(kept(loaded), expected);
  // With a copy on each node nothing has to be made.
  const Loaded own = load({}, setup.source, setup.layout, setup.options, setup.cache);
  EXPECT_FALSE(own.was_cached);
  world().barrier();
  EXPECT_TRUE(setup.load(many_nodes()).was_cached);
}

/// Ordinary samples with faults among them at known places, more of each than of the one before.
void plant(FakeSource& source) {
  const auto bit = [](Oddity finding) { return static_cast<std::uint32_t>(finding); };
  for (int i = 0; i < 100; ++i)
    source.add("q" + std::to_string(i), "answer");
  for (int i = 0; i < 2; ++i)
    source.add("empty" + std::to_string(i), "");  // 100, 101: masked
  for (int i = 0; i < 3; ++i)
    source.add("long" + std::to_string(i),
               std::string(30, 'x'));  // 102 to 104: 37 tokens, cut at 32
  for (int i = 0; i < 4; ++i)
    source.add("role" + std::to_string(i), "a", bit(Oddity::unknown_role));  // from 105
  for (int i = 0; i < 5; ++i)
    source.add("turn" + std::to_string(i), "a", bit(Oddity::no_end_of_turn));  // from 109
  for (int i = 0; i < 6; ++i)
    source.add("name" + std::to_string(i), "a", bit(Oddity::special_name));  // from 114
  for (int i = 0; i < 7; ++i)
    source.add("part" + std::to_string(i), "a", bit(Oddity::empty_answer));  // from 120
  for (int i = 0; i < 8; ++i)
    source.add("q" + std::to_string(11 * i), "answer");  // from 127: equal to earlier ones
}

TEST(DataReport, CountsEveryPlantedFaultOnAnyNumberOfRanks) {
  FakeSource source;
  plant(source);
  DatasetOptions options;
  options.max_seq_length = 32;
  options.vocab_size = tests::fake_vocab_size;
  options.on_masked = OnMasked::drop;
  const DataReport report = data::load(one_node(), source, Layout::separate, options).report;
  const auto count = [&](SampleKind kind) {
    return std::pair(report.of(kind).number, report.of(kind).first);
  };
  using Found = std::pair<std::int64_t, std::int64_t>;
  EXPECT_EQ(report.num_read, 135);
  EXPECT_EQ(report.num_samples, 133);
  EXPECT_EQ(count(SampleKind::masked), Found(2, 100));
  EXPECT_EQ(count(SampleKind::overlong), Found(3, 102));
  EXPECT_EQ(count(SampleKind::truncated), Found(3, 102));
  EXPECT_EQ(report.tokens_lost, 3 * 5);
  EXPECT_EQ(count(SampleKind::unknown_role), Found(4, 105));
  EXPECT_EQ(count(SampleKind::missing_end_of_turn), Found(5, 109));
  EXPECT_EQ(count(SampleKind::special_name), Found(6, 114));
  EXPECT_EQ(count(SampleKind::empty_answer), Found(7, 120));
  EXPECT_EQ(count(SampleKind::duplicate), Found(8, 127));
  EXPECT_EQ(report.eos_trained, 133 - 3 - 5);  // neither those cut nor those without an end
  EXPECT_EQ(report.longest, 37);
  EXPECT_EQ(report.example, 0);
}

TEST(FileDigests, AreTheSameOnAnyNumberOfRanksAndNodes) {
  const SharedFolder folder(world());
  const std::vector<fs::path> files = {folder.write("a", std::string(20'000'000, 'a')),
                                       folder.write("b", ""), folder.write("c", "c")};
  const auto expected = digest_files({}, files);
  EXPECT_TRUE(expected[0].starts_with("20000000 "));
  EXPECT_NE(expected[1], expected[2]);
  EXPECT_EQ(digest_files(one_node(), files), expected);
  EXPECT_EQ(digest_files(many_nodes(), files), expected);
}

TEST(FileDigests, OfCopiesOnNodesAreCompared) {
  if (world().size() == 1) GTEST_SKIP() << "needs more than one rank";
  const tests::TemporaryFolder own;
  const std::vector<fs::path> files = {own.write("a", "same"), own.write("b", "same")};
  const std::vector<std::string> expected = digest_files({}, files);
  EXPECT_EQ(digest_files(many_nodes(), files), expected);
  if (world().rank() == 1) own.write("b", "other");
  const std::string message = refusal([&] { digest_files(many_nodes(), files); });
  EXPECT_NE(message.find("/b: is not the same on "), std::string::npos) << message;
}

TEST(FileDigests, OfAFileThatIsWhatItWasAreRemembered) {
  const SharedFolder folder(world());
  const std::vector<fs::path> files = {folder.write("a", "one"), folder.write("b", "two")};
  const auto expected = digest_files({}, files);
  const fs::path memo = folder.path();
  const auto remembered = [&](bool keeps = true) {
    return digest_files(one_node(), files, memo, keeps);
  };
  // Both have just changed: nothing is kept.
  EXPECT_EQ(remembered(), expected);
  EXPECT_EQ(recall_digests(memo, files), (std::vector<std::string>{"", ""}));
  world().barrier();
  if (world().is_root()) keep_digests(memo, files, std::vector<std::string>{"3 a", "3 b"}, 0);
  world().barrier();
  EXPECT_EQ(remembered(), (std::vector<std::string>{"3 a", "3 b"})) << "neither is read";
  folder.write("b", "three");
  EXPECT_EQ(remembered(), (std::vector<std::string>{"3 a", digest_files({}, files)[1]}));
  folder.write("digests.json", "[");
  EXPECT_EQ(remembered(false)[0], expected[0]) << "a memo that cannot be read is none";
}

TEST(FileDigests, AFileThatIsNotThereIsAnErrorOnAllRanks) {
  const SharedFolder folder(world());
  const std::vector<fs::path> files = {folder.path() / "none"};
  EXPECT_TRUE(refusal([&] { digest_files(one_node(), files); }).starts_with("65: "));
}

}  // namespace
}  // namespace finetune::data::cache_test
