// SPDX-License-Identifier: Apache-2.0
// The faults that tests/golden/data/README.md lists are found, each where it is.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "data/text/text_source.hpp"
#include "formats/chat/chat.hpp"
#include "formats/tokens/tokens.hpp"
#include "modules/templates/chats.hpp"
#include "support/folders.hpp"
#include "unit/data/fake.hpp"

namespace finetune::formats::planted_test {
namespace {

namespace fs = std::filesystem;
using data::Oddity;
using Lines = std::set<std::int64_t>;

struct Found {
  std::map<Oddity, Lines> oddities;
  Lines masked;
};

Found find(const data::SampleSource& source) {
  Found found;
  for (std::int64_t i = 0; i < source.size(); ++i) {
    const data::SourceSample sample = source.sample(i);
    for (const Oddity oddity : {Oddity::empty_answer, Oddity::no_end_of_turn, Oddity::special_name,
                                Oddity::unknown_role}) {
      if ((sample.oddities & static_cast<std::uint32_t>(oddity)) != 0)
        found.oddities[oddity].insert(i + 1);
    }
    if (std::ranges::all_of(sample.tokens.labels,
                            [](std::int32_t label) { return label == data::not_trained; })) {
      found.masked.insert(i + 1);
    }
  }
  return found;
}

tokenizer::Tokenizer tokenizer_of(const std::string& name, const std::string& config) {
  const tests::TemporaryFolder folder;
  fs::copy(tests::source_folder() / "tests/golden/tokenizers" / name / "tokenizer.json",
           folder.path() / "tokenizer.json");
  folder.write("tokenizer_config.json", config);
  return tokenizer::Tokenizer::load(folder.path());
}

const fs::path planted = tests::source_folder() / "tests/golden/data";

TEST(PlantedFaults, OfChatsAreAllFound) {
  data::TokenizePolicy policy;
  policy.chat = tests::chat_template("chatml", "", "<|im_end|>");
  const data::TextSource source(chat::format().open(planted / "planted.jsonl", {}), chat::format(),
                                {}, policy,
                                tokenizer_of("qwen2", R"({"eos_token": "<|im_end|>"})"));
  const Found found = find(source);
  EXPECT_EQ(found.oddities, (std::map<Oddity, Lines>{{Oddity::empty_answer, {13, 14}},
                                                     {Oddity::special_name, {17, 18}},
                                                     {Oddity::unknown_role, {15, 16}}}));
  EXPECT_EQ(found.masked, Lines({15, 16, 22, 23}));
  EXPECT_EQ(source.sample(18).tokens.ids, source.sample(0).tokens.ids);
  EXPECT_TRUE(source.where(25).ends_with("planted.jsonl:26"));
}

TEST(PlantedFaults, OfTokensAreAllFound) {
  const data::TextSource source(
      tokens::format().open(planted / "planted_tokens.jsonl", {}), tokens::format(), {}, {},
      tokenizer_of("mistral", R"({"eos_token": "</s>", "bos_token": "<s>"})"));
  const Found found = find(source);
  EXPECT_EQ(found.oddities, (std::map<Oddity, Lines>{{Oddity::no_end_of_turn, {2, 3}}}));
  EXPECT_EQ(found.masked, Lines{4});
}

}  // namespace
}  // namespace finetune::formats::planted_test
