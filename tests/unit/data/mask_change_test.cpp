// SPDX-License-Identifier: Apache-2.0
#include "data/tokens/mask_change.hpp"

#include <gtest/gtest.h>

#include "core/hash.hpp"
#include "support/messages.hpp"
#include "unit/data/dialogues.hpp"

namespace finetune::data::mask_change_test {
namespace {

using tests::asked;
using tests::Dialogues;
using tests::Said;

/// Two starts with one cache: what the first one read, and what the second one does.
class Starts {
 public:
  Starts() { before.file = now.file = folder_.write("chat.jsonl", "as it was"); }

  Dialogues before{{asked("a", "b"), asked("Masked", "0"), asked("c", "d") + asked("e", "f"),
                    asked("g", "h") + asked("i", "j")}};
  Dialogues now{before.samples};
  DatasetOptions options = tests::dialogue_options();

  std::optional<MaskChange> change() {
    before.name = "before";
    now.name = "now";
    options.on_masked = OnMasked::drop;
    const CacheOptions cache{.folder = folder_.path() / "cache"};
    const Loaded first = load({}, before, Layout::separate, options, cache);
    const Loaded second = load({}, now, Layout::separate, options, cache);
    EXPECT_EQ(first.ids_fingerprint == second.ids_fingerprint, has_same_ids);
    const auto is_first = [&](const std::string& fingerprint) {
      return fingerprint == first.fingerprint;
    };
    return find_mask_change(cache_folder.value_or(cache.folder), is_first, second, [&] {
      ++num_opened;
      auto source = std::make_unique<Dialogues>(now.samples);
      source->file = now.file;
      return source;
    });
  }

  bool has_same_ids = true;
  std::optional<std::filesystem::path> cache_folder = {};
  int num_opened = 0;
  std::string folder() const { return folder_.path().string(); }

 private:
  const tests::TemporaryFolder folder_;
};

TEST(MaskChange, ShowsTheFirstSampleBothWays) {
  Starts starts;
  // What was dropped in front of it moves it, in the files it stays where it is.
  for (Dialogues* source : {&starts.before, &starts.now})
    for (Said& said : source->samples[1])
      said.is_trained = false;
  for (const std::size_t i : {2, 3})
    starts.now.samples[i][1].is_trained = false;
  const auto change = starts.change();
  ASSERT_TRUE(change);
  EXPECT_TRUE(change->has_same_tokens);
  EXPECT_EQ(starts.num_opened, 1);
  std::string shown = change->shown;
  const auto at = shown.find(starts.folder());
  ASSERT_NE(at, std::string::npos) << shown;
  tests::expect_words(shown.erase(at, starts.folder().size() + 1));
}

TEST(MaskChange, TellsOtherTokensFromOtherMasks) {
  Starts starts;
  starts.now.samples[0][0].text = "A";
  starts.has_same_ids = false;
  const auto change = starts.change();
  ASSERT_TRUE(change);
  EXPECT_FALSE(change->has_same_tokens);
  EXPECT_EQ(change->shown, "");
  EXPECT_EQ(starts.num_opened, 0);
}

TEST(MaskChange, IsNotKnownWithoutWhatTheEarlierStartRead) {
  Starts starts;
  starts.now.samples[2][1].is_trained = false;
  starts.cache_folder = starts.folder() + "/another";
  EXPECT_FALSE(starts.change());
  starts.cache_folder = "";
  EXPECT_FALSE(starts.change());
  EXPECT_EQ(starts.num_opened, 0);
}

TEST(MaskChange, OfDamagedTokensIsNotKnown) {
  Starts starts;
  starts.now.samples[2][1].is_trained = false;
  ASSERT_TRUE(starts.change());
  for (const auto& entry : std::filesystem::directory_iterator(starts.folder() + "/cache")) {
    if (entry.path().extension() != ".h5") continue;
    const auto damaged =
        std::filesystem::path(starts.folder()) / "damaged" / entry.path().filename();
    std::filesystem::create_directories(damaged.parent_path());
    std::string bytes = tests::file_text(entry.path());
    const auto at = bytes.find(std::string("j\0\0\0", 4));  // the last answer
    ASSERT_NE(at, std::string::npos);
    bytes[at] = 'k';
    std::ofstream(damaged, std::ios::binary) << bytes;
  }
  starts.cache_folder = starts.folder() + "/damaged";
  EXPECT_FALSE(starts.change());
}

}  // namespace
}  // namespace finetune::data::mask_change_test
