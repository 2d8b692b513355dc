// SPDX-License-Identifier: Apache-2.0
// Reading YAML and JSON of others, also hostile ones.
#include "migrate/detail/configuration.hpp"

#include "support/messages.hpp"
#include "unit/migrate/sample.hpp"

namespace finetune::migrate::tests::configuration_test {
namespace {

using finetune::tests::expect_message;
using finetune::tests::Facts;

std::string why_not(const std::string& text) {
  try {
    yaml::read(text, "f.yml");
    return "";
  } catch (const core::Error& error) {
    EXPECT_EQ(error.kind(), core::ErrorKind::deck);
    return error.what();
  }
}

void expect_refused(const std::string& text, const Facts& facts,
                    finetune::tests::Caller caller = finetune::tests::Caller::current()) {
  expect_message(why_not(text), "f.yml", facts, caller);
}

TEST(Configuration, ReadsYamlAndJson) {
  const Node yaml = yaml::read("a: 1\nb: {c: [x, 'y']}\nd:\n", "f.yml");
  EXPECT_EQ(yaml.find("a")->integer(), 1);
  EXPECT_EQ(yaml.find("b.c")->items[1].text, "y");
  EXPECT_TRUE(yaml.find("d")->is_empty());
  EXPECT_EQ(yaml.find("b")->line, 2);
  const Node json = yaml::read("{\"a\":1,\n\t\"b\": {\"c\": [\"x\", null]}}", "f.json");
  EXPECT_EQ(json.find("a")->integer(), 1);
  EXPECT_TRUE(json.find("b.c")->items[1].is_empty());
}

TEST(Configuration, TakesNumbersAsPythonProgramsMeanThem) {
  const Node node = yaml::read("a: 1e-4\nb: '2.5e-5'\nc: 3.0\nd: 1_000\ne: .5\nf: 0x10\n", "f");
  EXPECT_EQ(node.find("a")->number(), 1e-4);
  EXPECT_EQ(node.find("b")->number(), 2.5e-5);
  EXPECT_EQ(node.find("c")->integer(), 3);
  EXPECT_EQ(node.find("d")->integer(), 1000);
  EXPECT_EQ(node.find("e")->number(), 0.5);
  EXPECT_FALSE(node.find("f")->number());
  EXPECT_FALSE(node.find("a")->integer());
}

TEST(Configuration, FollowsAliasesMergesAndInterpolation) {
  Node node = yaml::read(
      "base: &b {lr: 1, steps: 5}\nrun:\n  <<: *b\n  lr: 2\nout: /tmp\nlogs: ${out}/${run.lr}\n"
      "self: ${self}\nnone: ${nobody}\n",
      "f");
  EXPECT_EQ(node.find("run.lr")->integer(), 2);
  EXPECT_EQ(node.find("run.steps")->integer(), 5);
  interpolate(node);
  EXPECT_EQ(node.find("logs")->text, "/tmp/2");
  EXPECT_EQ(node.find("self")->text, "${self}");
  EXPECT_EQ(node.find("none")->text, "${nobody}");
}

TEST(Configuration, RefusesWhatIsNone) {
  expect_refused("", {});
  expect_refused("- a\n- b\n", {});
  expect_refused("a: 1\na: 2\n", {"f.yml:2", "'a'"});
  expect_refused("a: 1\n---\nb: 2\n", {});
  expect_refused("a: [1, 2\nb: }\n", {"neither YAML nor JSON"});
  expect_refused("? [a, b]\n: c\n", {});
  expect_refused(std::string("a: \xff\n"), {"UTF-8"});
  expect_refused(std::string("a: \0b\n", 6), {});
}

TEST(Configuration, RefusesHostileFilesWithOneErrorInLittleTime) {
  expect_refused(std::string((1 << 20) + 1, '#'), {"1"});
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 10; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + before;
    for (int j = 0; j < 9; ++j)
      bomb += ", " + before;
    bomb += "]\n";
  }
  expect_refused(bomb, {"20,000"});
  expect_refused("a: " + std::string(2000, '[') + std::string(2000, ']'), {});
  expect_refused("a: &a [b, *a]\n", {"alias"});
  std::string wide;
  for (int i = 0; i < 30'000; ++i)
    wide += "k" + std::to_string(i) + ": 1\n";
  expect_refused(wide, {"20,000"});
}

}  // namespace
}  // namespace finetune::migrate::tests::configuration_test
