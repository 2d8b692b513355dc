// SPDX-License-Identifier: Apache-2.0
// Ids of conversations under Mistral's first template with a SentencePiece file.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "data/text/model_template.hpp"
#include "data/text/text_source.hpp"
#include "modules/templates/chats.hpp"
#include "support/folders.hpp"
#include "unit/data/fake.hpp"

namespace finetune::tests::mistral_v1_test {
namespace {

namespace fs = std::filesystem;
using data::OrderedJson;

const fs::path golden_folder = source_folder() / "tests/golden";

std::vector<std::int32_t> ids_of(const std::vector<data::Segment>& segments,
                                 const tokenizer::Tokenizer& tokenizer) {
  return data::tokenise(segments, tokenizer, data::SpecialNameMeaning::text, false).ids;
}

TEST(MistralV1, GivesTheIdsOfMistralsLibrary) {
  const TemporaryFolder folder;
  fs::copy(golden_folder / "tokenizers/spm-bpe/tokenizer.model", folder.path());
  const auto tokenizer = tokenizer::Tokenizer::load(folder.path());
  const auto chat = data::choose_template("mistral-v1", folder.path(), tokenizer, templates::all());
  std::ifstream file(golden_folder / "templates/mistral_v1.json");
  const OrderedJson golden = OrderedJson::parse(file);
  int compared = 0;
  for (const OrderedJson& each : golden.at("cases")) {
    const auto expected = each.at("ids").get<std::vector<std::int32_t>>();
    const data::Conversation talk = conversation(each);
    const bool is_question = talk.messages.back().role == data::ChatRole::user;
    const auto segments = is_question ? render_prompt(chat, talk, "c:1")
                                      : render(chat, talk, data::TrainOn::answers, "c:1").segments;
    EXPECT_EQ(ids_of(segments, tokenizer), expected) << each.at("messages");
    std::vector<data::Segment> as_one = segments;
    for (data::Segment& segment : as_one)
      segment.trained = true;
    EXPECT_EQ(ids_of(as_one, tokenizer), expected) << each.at("messages");
    ++compared;
  }
  EXPECT_EQ(compared, 4);
}

TEST(MistralV1, KeepsThePrefixThatNoTemplateWrites) {
  const TemporaryFolder folder;
  fs::copy(golden_folder / "tokenizers/spm-bpe/tokenizer.model", folder.path());
  const auto tokenizer = tokenizer::Tokenizer::load(folder.path());
  using tokenizer::Encode;
  const auto with_prefix = tokenizer.encode("<s>[INST]", Encode::no_ends);
  EXPECT_EQ(tokenizer.encode("<s> [INST]", Encode::no_ends), with_prefix);
  EXPECT_EQ(tokenizer.encode(" [INST]", Encode::no_ends),
            tokenizer.encode("[INST]", Encode::no_ends));
  EXPECT_NE(tokenizer.encode(" [INST]", Encode::document),
            tokenizer.encode("[INST]", Encode::document))
      << "text of a document keeps its spaces";
}

}  // namespace
}  // namespace finetune::tests::mistral_v1_test
