// SPDX-License-Identifier: Apache-2.0
// Tokenising that ends in its midst goes on where it was, on any number of ranks.
#include "data/tokens/detail/unfinished.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <memory>

#include "comm/interrupted.hpp"
#include "core/text.hpp"
#include "support/ranks.hpp"
#include "unit/data/cache_setup.hpp"

namespace finetune::data::unfinished_test {
namespace {

namespace fs = std::filesystem;
using tests::cached_in;
using tests::CacheSetup;
using tests::kept;
using tests::refusal;
using tests::world;

constexpr std::int64_t num_samples = 9000;
// Two threads read 32 samples at once, and ranks look up after every 1,000.
constexpr std::int64_t first_unit = 1024, two_units = 2016;

struct ManySamples : CacheSetup {
  ManySamples() : CacheSetup(world(), num_samples) { cache.keep_after_tokens = 0; }
};

std::string in_memory(const CacheSetup& setup) {
  return kept(load({}, setup.source, setup.layout, setup.options, CacheOptions{}));
}

/// All ranks leave after unit `last`, or once some rank cannot go on.
comm::Leave leave_after(std::int64_t last) {
  const auto units = std::make_shared<std::int64_t>(0);
  return {.begin = [=](std::int64_t) { *units = 0; },
          .after_unit =
              [=](bool wants_to) {
                ++*units;
                return *units >= last ||
                       world().all_reduce(std::int64_t{wants_to}, comm::Reduce::max) != 0;
              }};
}

/// What the ranks say when they leave.
std::string left(const CacheSetup& setup, std::int64_t last) {
  try {
    setup.load({world(), world(), leave_after(last)});
  } catch (const comm::Interrupted& interrupted) {
    return interrupted.what();
  }
  return "not left";
}

std::int64_t all_read(const CacheSetup& setup) {
  return world().all_reduce(setup.source.num_read.exchange(0), comm::Reduce::sum);
}

std::size_t num_unfinished(const CacheSetup& setup) {
  const auto names = cached_in(setup.folder);
  return static_cast<std::size_t>(
      std::ranges::count_if(names, [](const std::string& name) { return is_unfinished(name); }));
}

TEST(Unfinished, IsNotTokenisedAgain) {
  const ManySamples setup;
  const std::string expected = in_memory(setup);
  setup.source.num_read = 0;
  const std::int64_t ranks = world().size();
  const auto says = [&](std::int64_t of_a_rank) {
    return core::with_commas(of_a_rank * ranks) +
           " of 9,000 samples of the data are tokenised and kept for the next start";
  };
  EXPECT_EQ(left(setup, 1), says(first_unit));
  EXPECT_EQ(num_unfinished(setup), static_cast<std::size_t>(ranks));
  EXPECT_EQ(all_read(setup), first_unit * ranks);
  // A second one is stopped, too.
  EXPECT_EQ(left(setup, 2), says(two_units));
  EXPECT_EQ(all_read(setup), (two_units - first_unit) * ranks);
  const Loaded whole = setup.load();
  EXPECT_EQ(all_read(setup), num_samples - two_units * ranks);
  EXPECT_EQ(kept(whole), expected);
  const auto names = cached_in(setup.folder);
  ASSERT_EQ(names.size(), 1u);
  EXPECT_TRUE(names[0].ends_with(".h5")) << names[0];
  EXPECT_TRUE(setup.load().was_cached);
}

TEST(Unfinished, GoesOnOnOtherRanks) {
  const ManySamples setup;
  const std::string expected = in_memory(setup);
  setup.source.num_read = 0;
  EXPECT_NE(left(setup, 1), "not left");
  (void)all_read(setup);
  if (world().is_root()) {
    const Loaded whole = setup.load(DataRanks{});
    EXPECT_EQ(setup.source.num_read, num_samples - first_unit * world().size());
    EXPECT_EQ(kept(whole), expected);
  }
  world().barrier();
}

TEST(Unfinished, IsTokenisedAgainWhereItIsDamaged) {
  for (const char* damage : {"torn", "flipped", "garbage", "empty"}) {
    const ManySamples setup;
    const std::string expected = in_memory(setup);
    setup.source.num_read = 0;
    EXPECT_NE(left(setup, 1), "not left");
    const std::int64_t before = all_read(setup);
    if (world().is_root()) {
      for (const auto& entry : fs::directory_iterator(setup.cache.folder)) {
        if (!is_unfinished(entry.path())) continue;
        const std::string text = tests::file_text(entry.path());
        std::string other = text;
        if (damage == std::string("torn")) other.resize(text.size() / 2);
        if (damage == std::string("flipped")) other[text.size() / 2] ^= 1;
        if (damage == std::string("garbage")) other = "this is no block of anything at all, is it?";
        if (damage == std::string("empty")) other.clear();
        std::ofstream(entry.path(), std::ios::binary) << other;
      }
    }
    world().barrier();
    EXPECT_EQ(kept(setup.load()), expected) << damage;
    EXPECT_EQ(all_read(setup), num_samples) << damage << ", before: " << before;
  }
}

TEST(Unfinished, OfOtherDataIsNotTaken) {
  ManySamples setup;
  EXPECT_NE(left(setup, 1), "not left");
  setup.options.max_seq_length = 15;
  setup.options.on_masked = OnMasked::drop;
  const std::string expected = in_memory(setup);
  (void)all_read(setup);
  EXPECT_EQ(kept(setup.load()), expected);
  EXPECT_EQ(all_read(setup), num_samples);
}

TEST(Unfinished, HoldsNoTokenOutsideTheVocabulary) {
  ManySamples setup;
  EXPECT_NE(left(setup, 1), "not left");
  const fs::path target = [&] {
    for (const auto& entry : fs::directory_iterator(setup.cache.folder))
      if (is_unfinished(entry.path()))
        return setup.cache.folder / (entry.path().filename().string().substr(0, 32) + ".h5");
    return fs::path();
  }();
  ASSERT_FALSE(target.empty());
  EXPECT_EQ(UnfinishedReader(target, {0, num_samples}).take(0, num_samples, setup.options).size(),
            1024u);
  EXPECT_EQ(UnfinishedReader(target, {0, num_samples}).take(990, num_samples, setup.options).size(),
            34u);
  EXPECT_EQ(UnfinishedReader(target, {0, num_samples}).take(990, 995, setup.options).size(), 5u);
  EXPECT_TRUE(UnfinishedReader(target, {0, num_samples})
                  .take(num_samples, num_samples, setup.options)
                  .empty());
  EXPECT_TRUE(UnfinishedReader(target, {num_samples, 2 * num_samples})
                  .take(0, num_samples, setup.options)
                  .empty());
  setup.options.vocab_size = 200;
  EXPECT_TRUE(
      UnfinishedReader(target, {0, num_samples}).take(0, num_samples, setup.options).empty());
  world().barrier();
}

TEST(Unfinished, AnErrorOfOneRankEndsTheWorkOfAll) {
  ManySamples setup;
  const auto bad = static_cast<std::size_t>(num_samples - 1);
  setup.source.samples[bad].tokens.ids[0] = 5000;
  const std::string said = refusal([&] { setup.load({world(), world(), leave_after(1'000'000)}); });
  EXPECT_NE(said.find("fake:9000: "), std::string::npos) << said;
}

TEST(Unfinished, IsNotKeptOfWhatIsSoonDone) {
  ManySamples setup;
  setup.cache.keep_after_tokens = 1'000'000;
  EXPECT_EQ(left(setup, 1).substr(0, 4), "0 of");
  EXPECT_EQ(num_unfinished(setup), 0u);
}

TEST(Unfinished, AFullDiskIsNoError) {
  ManySamples setup;
  const fs::path nowhere = setup.folder.path() / "none" / "0123.h5";
  UnfinishedWriter writer(nowhere, 0);
  std::vector<Made> made(1);
  made[0].tokens = {PackedToken(1, true)};
  writer.add(0, made);
  writer.flush();
  EXPECT_EQ(writer.num_kept(), 0);
}

}  // namespace
}  // namespace finetune::data::unfinished_test
