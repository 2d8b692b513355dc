// SPDX-License-Identifier: Apache-2.0
// What the token cache keeps beside tokens, on any number of ranks.
#include <gtest/gtest.h>

#include "data/tokens/detail/cache_file.hpp"
#include "data/tokens/load.hpp"
#include "support/ranks.hpp"
#include "unit/data/cache_setup.hpp"
#include "unit/data/dialogues.hpp"

namespace finetune::data::cache_report_test {
namespace {

using tests::asked;
using tests::SharedFolder;
using tests::world;

TEST(CachedReport, HasTheConversationAndTheNamesOfEnds) {
  const SharedFolder folder(world());
  tests::Dialogues source({asked("a", "b"), asked("c", "d") + asked("e", "f")});
  source.file = folder.write("chat.jsonl", "what it says");
  source.stops = {tests::fake_bos, tests::fake_eos};
  const CacheOptions cache{.folder = folder.path() / "cache"};
  const auto loaded = [&](bool was_cached) {
    Loaded all =
        load({world(), world()}, source, Layout::separate, tests::dialogue_options(), cache);
    EXPECT_EQ(all.was_cached, was_cached);
    return all;
  };
  const auto said = [](const Loaded& all) {
    return to_string(all.report, "data", 100) + all.ids_fingerprint;
  };
  const Loaded made = loaded(false);
  EXPECT_EQ(made.report.num_answers, 3);
  EXPECT_EQ(made.report.ends, (std::vector<EndCount>{{"</s>", 3}, {"<s>", 0}}));
  EXPECT_EQ(made.report.example_where, source.file.string() + ":2");
  EXPECT_EQ(said(loaded(true)), said(made));
  // Files and templates may lie elsewhere at the next start.
  source.file = folder.write("moved.jsonl", "what it says");
  source.chat_template = "the model's own template, moved/chat_template.jinja";
  const DataReport moved = loaded(true).report;
  EXPECT_EQ(moved.example_where, source.file.string() + ":2");
  EXPECT_EQ(moved.example_template, source.chat_template);
}

TEST(CachedReport, OfAnEarlierVersionNeedsNoDigestOfTheTokensAlone) {
  tests::CacheSetup setup(world());
  const Loaded made = setup.load();
  world().barrier();
  if (world().is_root()) {
    CacheFile file = CacheFile::open(made.cache_file);
    EXPECT_EQ(file.description.at("ids"), made.ids_fingerprint);
    file.description.erase("ids");
    complete_cache_file(made.cache_file, file.layout, file.digests, file.description);
  }
  world().barrier();
  const Loaded found = setup.load();
  EXPECT_TRUE(found.was_cached);
  EXPECT_EQ(found.ids_fingerprint, made.ids_fingerprint);
}

}  // namespace
}  // namespace finetune::data::cache_report_test
