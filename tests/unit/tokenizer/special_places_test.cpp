// SPDX-License-Identifier: Apache-2.0
// Names of added tokens in a text are found where encoding takes them out of it.

#include <vector>

#include "tokenizer_files.hpp"

namespace finetune::tokenizer::test::special_places_test {
namespace {

using Places = std::vector<SpecialPlace>;

Json letters() {
  return Json::parse(R"({"model": {"type": "BPE", "merges": [],
      "vocab": {"a": 0, "b": 1, "c": 2, "▁": 3, "<": 4, "｜": 5, "e": 6, ">": 7, "|": 8}},
      "added_tokens": []})");
}

/// Adds a token, whose id follows the others.
void add(Json& file, const char* name, const Json& more) {
  Json token = {{"id", 9 + std::ssize(file["added_tokens"])}, {"content", name}};
  token.update(more);
  file["added_tokens"].push_back(token);
}

TEST(SpecialPlaces, AreTheLongestOfTheLeftmost) {
  const ModelFolder folder;
  Json file = letters();
  add(file, "ab", {{"special", true}});
  add(file, "abc", {{"special", false}});
  add(file, "bb", {{"special", true}});
  const Tokenizer tokenizer = folder.load(file);
  EXPECT_EQ(tokenizer.find_special("cabcabbb"),
            (Places{{1, 4, 10, false}, {4, 6, 9, true}, {6, 8, 11, true}}));
  EXPECT_EQ(tokenizer.find_special(""), Places{});
}

TEST(SpecialPlaces, OfNamesThatAreNotAscii) {
  const ModelFolder folder;
  Json file = letters();
  add(file, "<｜e｜>", {{"special", true}});
  add(file, "｜e", {{"special", false}});
  const Tokenizer tokenizer = folder.load(file);
  EXPECT_EQ(tokenizer.find_special("<｜e｜><｜e"), (Places{{0, 9, 9, true}, {10, 14, 10, false}}));
  EXPECT_TRUE(tokenizer.names_special("｜<｜e｜>"));
  EXPECT_FALSE(tokenizer.names_special("<｜e｜"));
}

TEST(SpecialPlaces, LeaveOutTheWhiteSpaceThatTokensTake) {
  const ModelFolder folder;
  Json file = letters();
  add(file, "ab", {{"special", true}, {"lstrip", true}, {"rstrip", true}});
  EXPECT_EQ(folder.load(file).find_special("c  ab  c"), (Places{{3, 5, 9, true}}));
}

TEST(SpecialPlaces, AreThoseOfTheTextWhereNormalisedTextIsSearched) {
  const ModelFolder folder;
  Json file = letters();
  file["normalizer"] = Json::parse(R"({"type": "Sequence", "normalizers": [{"type": "Lowercase"},
      {"type": "Replace", "pattern": {"String": "x"}, "content": "ccc"}]})");
  add(file, "ab", {{"special", true}, {"normalized", true}});
  const Tokenizer tokenizer = folder.load(file);
  EXPECT_EQ(tokenizer.find_special("xABxxabAb"),
            (Places{{1, 3, 9, true}, {5, 7, 9, true}, {7, 9, 9, true}}));
  EXPECT_EQ(tokenizer.find_special("cab"), (Places{{1, 3, 9, true}}));
}

TEST(SpecialPlaces, StandBehindThePrefixOfAText) {
  const ModelFolder folder;
  Json file = letters();
  file["normalizer"] = Json::parse(R"({"type": "Sequence", "normalizers": [
      {"type": "Prepend", "prepend": "▁"},
      {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]})");
  add(file, "ab", {{"special", true}, {"normalized", true}});
  const Tokenizer tokenizer = folder.load(file);
  EXPECT_EQ(tokenizer.find_special("ab ab c ab"),
            (Places{{0, 2, 9, true}, {3, 5, 9, true}, {8, 10, 9, true}}));
}

}  // namespace
}  // namespace finetune::tokenizer::test::special_places_test
