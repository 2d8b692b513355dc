// SPDX-License-Identifier: Apache-2.0
#include "core/json.hpp"
#include "core/python_json.hpp"

#include <gtest/gtest.h>

#include "core/error.hpp"
#include "support/errors.hpp"

namespace finetune::core::json_test {
namespace {

std::string message_of(const std::string& text) {
  return tests::refusal_of(ErrorKind::input, [&] { parse_json(text, "a.json", 7); });
}

TEST(Json, ErrorsNameFileLineAndColumn) {
  EXPECT_TRUE(message_of("{\n  \"a\": 1,\n  oops\n}").starts_with("a.json:9:3: broken JSON"))
      << message_of("{\n  \"a\": 1,\n  oops\n}");
}

TEST(Json, RefusesWhatOnlyAttacksContain) {
  EXPECT_NE(message_of(std::string(100, '[') + std::string(100, ']')), "");
  EXPECT_NE(message_of("{\"a\": 1, \"a\": 2}").find("occurs twice"), std::string::npos);
  EXPECT_NE(message_of("{\"a\": \"\xff\"}").find("0xff is not valid UTF-8"), std::string::npos);
  EXPECT_NE(message_of("{} {}"), "");
  EXPECT_NE(message_of(std::string("{}\0garbage", 10)).find("a NUL byte"), std::string::npos);
}

TEST(Json, RefusesMoreValuesThanAnyFileHas) {
  std::string many = "[0";
  for (int i = 0; i < 1'000'000; ++i)
    many += ",0";
  EXPECT_NE(message_of(many + "]").find("more than 1,000,000 values"), std::string::npos);
  EXPECT_EQ(parse_json("[1, {\"a\": 2}]", "a.json", 1, 4).size(), 2u);
  EXPECT_THROW(parse_json("[1, {\"a\": 2}]", "a.json", 1, 3), Error);
}

TEST(Json, KeysInMessagesStayInTheirLine) {
  EXPECT_NE(message_of("{\"a\\nb\": 1, \"a\\nb\": 2}").find("key \"a\\x0ab\" occurs"),
            std::string::npos);
}

TEST(Json, MessagesAreShortWhateverTheTextHolds) {
  const std::string name(1 << 20, 'x');
  EXPECT_LT(message_of("{\"" + name + "\": 1, \"" + name + "\": 2}").size(), 1000u);
  EXPECT_LT(message_of("{\"a\": \"" + name + "}").size(), 1000u);
  EXPECT_LT(message_of("[1" + std::string(1 << 20, '0') + "]").size(), 1000u);
}

TEST(PythonJson, ReadsWhatJsonHasNoNumberFor) {
  const Json value = parse_python_json(
      R"({"a": [1.5, Infinity, -Infinity, NaN], "b": "NaN \" Infinity"})", "a.json");
  EXPECT_EQ(value["a"][0], 1.5);
  EXPECT_EQ(not_finite_word(value["a"][0]), "");
  EXPECT_EQ(not_finite_word(value["a"][1]), "Infinity");
  EXPECT_EQ(not_finite_word(value["a"][2]), "-Infinity");
  EXPECT_EQ(not_finite_word(value["a"][3]), "NaN");
  for (const Json& none : value["a"])
    EXPECT_FALSE(none.is_number() && none != 1.5);
  EXPECT_EQ(not_finite_word(value["b"]), "");
  EXPECT_EQ(not_finite_word("Infinity"), "Infinity") << "as transformers 5 writes it";
  EXPECT_EQ(value["b"], "NaN \" Infinity");
  EXPECT_THROW(parse_json("[NaN]", "a.json"), Error) << "data stay strict";
  for (const char* broken : {"[Inf]", "[\"a", "[Infinity", "{\"a\\", "\""})
    EXPECT_THROW(parse_python_json(broken, "a.json"), Error) << broken;
}

TEST(PythonJson, IsWrittenAsItWasRead) {
  const std::string text = "{\n  \"a\": Infinity,\n  \"b\": [\n    -Infinity,\n    \"x\"\n  ]\n}\n";
  EXPECT_EQ(dump_python_json(parse_python_json(text, "a.json")), text);
  // Transformers 5 writes infinity as a text in an object, and a label may be called NaN.
  const std::string texts =
      "{\n  \"Infinity\": \"NaN\",\n  \"limit\": {\n    \"__float__\": \"Infinity\"\n  }\n}\n";
  EXPECT_EQ(dump_python_json(parse_python_json(texts, "a.json")), texts);
}

TEST(Json, SameKeyInTwoObjectsIsFine) {
  EXPECT_EQ(parse_json("[{\"a\": 1}, {\"a\": 2}]", "a.json").size(), 2u);
}

}  // namespace
}  // namespace finetune::core::json_test
