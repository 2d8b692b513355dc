// SPDX-License-Identifier: Apache-2.0
#include "formats/tokens/tokens.hpp"

#include <gtest/gtest.h>

#include "unit/data/fake.hpp"

namespace finetune::formats::tokens::tokens_test {
namespace {

using Ids = std::vector<std::int32_t>;

data::Tokens read(std::string_view content, const data::Columns& columns = {}) {
  const tests::TemporaryFolder folder;
  return format().open(folder.write("d.jsonl", content), columns)->sample(0).tokens;
}

std::string refusal_of(std::string_view content) {
  const tests::TemporaryFolder folder;
  const auto path = folder.write("d.jsonl", content);
  return tests::refusal([&] { format().open(path, {})->sample(0); }, folder.path());
}

TEST(TokensFormat, WithoutLabelsEveryTokenIsTrained) {
  const data::Tokens tokens = read(R"({"input_ids": [1, 7, 2], "length": 3})");
  EXPECT_EQ(tokens.ids, Ids({1, 7, 2}));
  EXPECT_EQ(tokens.labels, Ids({1, 7, 2}));
}

TEST(TokensFormat, LabelsSayWhatIsTrained) {
  EXPECT_EQ(read(R"({"input_ids": [1, 7, 2], "labels": [-100, -100, 2]})").labels,
            Ids({-100, -100, 2}));
  data::Columns columns;
  columns.tokens = "ids";
  columns.labels = "targets";
  EXPECT_EQ(read(R"({"ids": [1, 7], "targets": [-100, 7]})", columns).labels, Ids({-100, 7}));
}

TEST(TokensFormat, PaddingAtEitherEndIsLeftOut) {
  const data::Tokens tokens = read(
      R"({"input_ids": [0, 1, 7, 0], "labels": [-100, -100, 7, -100], "attention_mask": [0, 1, 1, 0]})");
  EXPECT_EQ(tokens.ids, Ids({1, 7}));
  EXPECT_EQ(tokens.labels, Ids({-100, 7}));
}

TEST(TokensFormat, DocumentsAreTheSameRecordsThatRunOn) {
  EXPECT_EQ(format().layout, data::Layout::separate);
  EXPECT_EQ(documents().layout, data::Layout::continuous);
  EXPECT_EQ(documents().name, "token_documents");
  const tests::TemporaryFolder folder;
  const auto path = folder.write("d.jsonl", R"({"input_ids": [1, 7, 2]})");
  EXPECT_EQ(documents().open(path, {})->sample(0).tokens.ids, Ids({1, 7, 2}));
}

TEST(TokensFormat, RefusesShiftedLabels) {
  EXPECT_EQ(refusal_of(R"({"input_ids": [1, 7, 2], "labels": [7, 2, -100]})"),
            "65: d.jsonl:1: field \"labels\" has 7 at place 1 where the token is 1 (a label is "
            "-100 or the token itself; the loss shifts by one). Do not shift the labels.");
}

TEST(TokensFormat, RefusesListsOfOtherLengths) {
  EXPECT_EQ(refusal_of(R"({"input_ids": [1, 7], "labels": [1]})"),
            "65: d.jsonl:1: field \"labels\" has 1 entries (there are 2 tokens). Give one for each "
            "token.");
  EXPECT_EQ(
      refusal_of(R"({"input_ids": [1, 2, 3], "attention_mask": [1, 0, 1]})"),
      "65: d.jsonl:1: field \"attention_mask\" has 0 at place 2 (it is 1 for tokens and 0 for "
      "padding at the ends). Give each sample a record of its own; they are packed here.");
}

TEST(TokensFormat, RefusesWhatIsNoListOfIds) {
  EXPECT_EQ(refusal_of(R"({"input_ids": "1 2"})"),
            "65: d.jsonl:1: field \"input_ids\" is of type string (a list of whole numbers from 0 "
            "up is needed). Correct these data, or choose the data.format they have.");
  EXPECT_EQ(refusal_of(R"({"input_ids": [1, -2]})"),
            "65: d.jsonl:1: field \"input_ids\" holds -2 (a list of whole numbers from 0 up is "
            "needed). Correct these data, or choose the data.format they have.");
  EXPECT_TRUE(refusal_of(R"({"input_ids": [1.5]})").find("holds a number") != std::string::npos);
  EXPECT_EQ(refusal_of(R"({"input_ids": []})"),
            "65: d.jsonl:1: has no tokens (there is nothing to learn). Remove this sample.");
  EXPECT_TRUE(refusal_of(R"({"input_ids": [99999999999999999999]})").starts_with("65: d.jsonl:1"));
}

}  // namespace
}  // namespace finetune::formats::tokens::tokens_test
