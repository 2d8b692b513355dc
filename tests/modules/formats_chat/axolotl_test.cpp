// SPDX-License-Identifier: Apache-2.0
// A real conversation under the Llama 2 template, against tokens and labels that another program
// made of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "core/json.hpp"
#include "data/text/text_source.hpp"
#include "formats/chat/chat.hpp"
#include "modules/templates/chats.hpp"
#include "support/material.hpp"
#include "unit/data/fake.hpp"

namespace finetune::formats::chat::axolotl_test {
namespace {

using Ids = std::vector<std::int32_t>;

TEST(Axolotl, TokensAndLabelsOfALlama2ConversationAreTheSame) {
  const auto folder = tests::material("conformance/axolotl");
  const auto model = tests::material("tokenizers/llama2");
  REQUIRE_MATERIAL(folder);
  REQUIRE_MATERIAL(model);
  std::ifstream expected_file(folder / "conversation.tokenized_llama2chat.json");
  const core::Json expected = core::Json::parse(expected_file);
  auto ids = expected.at("input_ids").get<Ids>();
  auto labels = expected.at("labels").get<Ids>();
  // Behind the last answer the file has one more begin token, trained, and then padding: with a
  // begin token at the start of every question the last one has no question.
  while (ids.back() == 0)
    ids.pop_back();
  ASSERT_EQ(ids.back(), 1);
  ids.pop_back();
  labels.resize(ids.size());

  const tokenizer::Tokenizer tokenizer = tokenizer::Tokenizer::load(model);
  // The system message of the other program is its own: taken from its text.
  const std::string text = tokenizer.decode(ids, false);
  const std::size_t begin = text.find("<<SYS>>\n") + 8;
  std::ifstream given_file(folder / "conversation.json");
  core::Json given = core::Json::parse(given_file);
  given["system"] = text.substr(begin, text.find("\n<</SYS>>") - begin);
  const tests::TemporaryFolder data_folder;
  const auto path = data_folder.write("d.jsonl", given.dump());

  data::TokenizePolicy policy;
  policy.chat = tests::chat_template("llama2");
  const data::TextSource source(sharegpt().open(path, {}), sharegpt(), {}, policy, tokenizer);
  const data::SourceSample sample = source.sample(0);
  EXPECT_EQ(sample.tokens.ids, ids);
  EXPECT_EQ(sample.tokens.labels, labels);
  EXPECT_EQ(sample.oddities, 0u);
}

}  // namespace
}  // namespace finetune::formats::chat::axolotl_test
