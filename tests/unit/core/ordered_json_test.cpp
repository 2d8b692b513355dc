// SPDX-License-Identifier: Apache-2.0
#include "core/ordered_json.hpp"

#include <gtest/gtest.h>

#include <string>

#include "core/error.hpp"

namespace finetune::core {
namespace {

TEST(OrderedJson, IsWhatTheLibraryParsesWhereNumbersFit) {
  for (const char* text :
       {R"({"b": [1, -2, {"z": null, "a": [[], {}]}], "a": 1.10, "c": "x\"\u00e9", "": false})",
        "[18446744073709551615, -9223372036854775808, 0, -0, 1e5, 20000000000000000000000.0]",
        "\"text\"", "7", "null", "[]"}) {
    EXPECT_EQ(ordered_json(text), OrderedJson::parse(text)) << text;
    EXPECT_EQ(ordered_json(text).dump(), OrderedJson::parse(text).dump()) << text;
  }
}

TEST(OrderedJson, KeepsTheDigitsOfWholeNumbersOfAnyLength) {
  const OrderedJson json = ordered_json(
      R"({"wei": 20000000000000000000000, "below": [-9223372036854775809], "most": 18446744073709551616, "fits": 18446744073709551615, "real": 2e22})");
  EXPECT_EQ(exact_digits(json.at("wei")), "20000000000000000000000");
  EXPECT_EQ(exact_digits(json.at("below").front()), "-9223372036854775809");
  EXPECT_EQ(exact_digits(json.at("most")), "18446744073709551616");
  EXPECT_FALSE(exact_digits(json.at("fits")));
  EXPECT_EQ(json.at("fits").get<std::uint64_t>(), UINT64_MAX);
  EXPECT_FALSE(exact_digits(json.at("real")));
  EXPECT_EQ(json.at("real").get<double>(), 2e22);
  EXPECT_EQ(json.begin().key(), "wei");
}

TEST(OrderedJson, BytesOfOthersAreNoDigits) {
  EXPECT_FALSE(exact_digits(OrderedJson::binary({1, 2})));
  EXPECT_FALSE(exact_digits(OrderedJson::binary({1, 2}, 7)));
  EXPECT_EQ(exact_digits(from_digits("-30")), "-30");
}

TEST(OrderedJson, IsPlainForReadersThatKnowNoDigits) {
  const OrderedJson json = ordered_json(R"({"id": [20000000000000000000000, 7], "a": {"b": "c"}})");
  EXPECT_EQ(plain_json(json), Json::parse(R"({"a": {"b": "c"}, "id": [2e22, 7]})"));
  EXPECT_STREQ(type_name(json.at("id").front()), "number");
  EXPECT_STREQ(type_name(json.at("id")), "array");
}

TEST(OrderedJson, RefusesWhatParseJsonRefuses) {
  std::string many = "{\"a0\": 0";
  for (int i = 1; i < 40; ++i)
    many += ", \"a" + std::to_string(i) + "\": 0";
  EXPECT_EQ(ordered_json(many + "}").size(), 40u);
  EXPECT_THROW(ordered_json(many + ", \"a3\": 1}"), Error);  // behind many names
  EXPECT_THROW(ordered_json(R"({"a": 1, "a": 2})"), Error);
  EXPECT_THROW(ordered_json(std::string(66, '[') + "0" + std::string(66, ']')), Error);
  EXPECT_THROW(ordered_json("[1, 2", "x", 1, 2), Error);
  EXPECT_THROW(ordered_json("[1, 2]", "x", 1, 2), Error);  // three values
  EXPECT_THROW(ordered_json("[\xff]"), Error);
  EXPECT_THROW(ordered_json("[1e999]"), Error);
}

}  // namespace
}  // namespace finetune::core
