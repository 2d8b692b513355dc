// SPDX-License-Identifier: Apache-2.0
#include "data/tokens.hpp"

#include <gtest/gtest.h>

#include "unit/data/fake.hpp"

namespace finetune::data {
namespace {

using tests::byte_encoder;
using tests::fake_bos;
using tests::fake_eos;
using Ids = std::vector<std::int32_t>;
constexpr std::int32_t no = not_trained;

TEST(Tokenise, TrainsTheAnswerAndTheEndOfText) {
  const Tokens tokens = tokenise({{{"ab", false}, {"cd", true}}, "x:1"}, byte_encoder());
  EXPECT_EQ(tokens.ids, (Ids{fake_bos, 'a', 'b', 'c', 'd', fake_eos}));
  EXPECT_EQ(tokens.labels, (Ids{no, no, no, 'c', 'd', fake_eos}));
}

TEST(Tokenise, TrainsAllOfADocument) {
  const Tokens tokens = tokenise({{{"ab", true}}, "x:1"}, byte_encoder());
  EXPECT_EQ(tokens.ids, (Ids{fake_bos, 'a', 'b', fake_eos}));
  EXPECT_EQ(tokens.labels, tokens.ids);
}

TEST(Tokenise, TrainsNothingWhereTheAnswerIsEmpty) {
  const Tokens tokens = tokenise({{{"ab", false}, {"", true}}, "x:1"}, byte_encoder());
  EXPECT_EQ(tokens.ids, (Ids{fake_bos, 'a', 'b', fake_eos}));
  EXPECT_EQ(tokens.labels, (Ids{no, no, no, no}));
}

TEST(Tokenise, TrainsNothingOfAnEmptyDocument) {
  const Tokens tokens = tokenise({{{"", true}}, "x:1"}, byte_encoder());
  EXPECT_EQ(tokens.ids, (Ids{fake_bos, fake_eos}));
  EXPECT_EQ(tokens.labels, (Ids{no, no}));
}

TEST(Tokenise, TrainsTheEndOfTextAfterAnUntrainedLastSegment) {
  const Tokens tokens = tokenise({{{"a", false}, {"b", true}, {"c", false}}, ""}, byte_encoder());
  EXPECT_EQ(tokens.labels, (Ids{no, no, 'b', no, fake_eos}));
}

TEST(Tokenise, EndsOnceIfTheTokenizerEndsDocumentsItself) {
  Encoder encoder = byte_encoder();
  encoder.document = [](std::string_view text) {
    Ids ids = tests::bytes_of(text);
    ids.push_back(fake_eos);
    return ids;
  };
  EXPECT_EQ(tokenise({{{"ab", true}}, ""}, encoder).ids, (Ids{'a', 'b', fake_eos}));
  EXPECT_EQ(tokenise({{{"a", false}, {"b", true}}, ""}, encoder).ids, (Ids{'a', 'b', fake_eos}));
}

}  // namespace
}  // namespace finetune::data
