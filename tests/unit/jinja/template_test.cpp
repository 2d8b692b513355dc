// SPDX-License-Identifier: Apache-2.0
// Templates give the text that Python's jinja2 gives (golden/jinja/make_cases.py).
#include "jinja/template.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "support/folders.hpp"
#include "support/messages.hpp"

namespace finetune::jinja::template_test {
namespace {

using Json = nlohmann::ordered_json;

const Json& golden() {
  static const Json all =
      Json::parse(std::ifstream(tests::source_folder() / "tests/golden/jinja/cases.json"));
  return all;
}

std::string rendered(const std::string& text, const Json& names = Json::object()) {
  return Template::parse(text).render(Value::from_json(names).mapping(), 0).text;
}

/// The message of what it throws.
template <typename F>
std::string problem_of(const F& f) {
  try {
    f();
  } catch (const Problem& problem) {
    return problem.what();
  }
  return "none";
}

TEST(Template, GivesTheTextThatPythonGives) {
  int num_texts = 0;
  for (const Json& one : golden().at("cases")) {
    const auto text = one.at("template").get<std::string>();
    if (one.contains("text")) {
      EXPECT_EQ(rendered(text, golden().at("names")), one.at("text").get<std::string>()) << text;
      ++num_texts;
    } else if (one.contains("refusal")) {
      EXPECT_THROW(rendered(text, golden().at("names")), Refusal) << text;
    } else {
      EXPECT_THROW(rendered(text, golden().at("names")), Problem) << text;
    }
  }
  EXPECT_GT(num_texts, 100);
}

TEST(Template, ZeroHasASignWhereItIsAFloat) {
  EXPECT_EQ(rendered("{{ -0.0 }} {{ -x }} {{ -0 }} {{ +y }}", {{"x", 0.0}, {"y", -0.0}}),
            "-0.0 -0.0 0 -0.0");
}

TEST(Template, SaysInWhichLineItFails) {
  EXPECT_EQ(problem_of([] { Template::parse("a\n{% if x %}\nb"); }),
            "line 3: {% endif %} is expected, not the end of the template");
  EXPECT_EQ(problem_of([] { Template::parse("{{ x y }}"); }), "line 1: }} is expected, not \"y\"");
  EXPECT_EQ(problem_of([] { rendered("a\n{{ messages[0].content }}"); }),
            "line 2: messages is undefined");
  EXPECT_EQ(problem_of([] { rendered("{{ [].append(1) }}"); }),
            "line 1: list.append would change it, which templates may not");
}

TEST(Template, SaysWhatItRefusesInItsOwnWords) {
  EXPECT_EQ(problem_of([] { rendered("{{ raise_exception('roles must alternate') }}"); }),
            "roles must alternate");
}

TEST(Template, NamesTheFormatsThatItRefuses) {
  const auto refused = [](const std::string& place, const std::string& value,
                          const tests::Facts& facts) {
    tests::expect_message(
        problem_of([&] { rendered("{{ '" + place + "'.format(" + value + ") }}"); }), "line 1",
        facts);
  };
  refused("{:c}", "65", {":c", "int"});
  refused("{:n}", "1.5", {":n", "float"});
  refused("{:#.3f}", "1.5", {":#.3f", "float"});
  refused("{:z.1f}", "-0.01", {":z.1f", "float"});
  refused("{:09,}", "1234", {":09,", "int"});
  refused("{:>5}", "none", {":>5", "NoneType"});
  refused("{!a}", "1", {"!a"});
  refused("{:>5}", "x", {"x"});
  refused("{x}", "1", {"{x}"});
  refused("{:.1001f}", "1.5", {"1000"});
}

TEST(Template, NamesWhatFiltersDoNotTake) {
  const auto refused = [](const std::string& expression, const tests::Facts& facts) {
    tests::expect_message(problem_of([&] { rendered("{{ " + expression + " }}"); }), "line 1",
                          facts);
  };
  refused("none | indent", {"indent", "NoneType"});
  refused("[1] | wordwrap", {"wordwrap", "list"});
  refused("'a b' | wordwrap(0)", {"wordwrap", "width"});
  refused("[1] | slice(0)", {"slice"});
  refused("'x' | filesizeformat", {"filesizeformat"});
  refused("[1] | random", {"random"});
}

TEST(Template, SaysThatALoopIsNotRecursive) {
  tests::expect_message(
      problem_of([] { rendered("a\n{% for x in [1] %}\n{{ loop([2]) }}{% endfor %}"); }), "line 3",
      {"loop", "recursive"});
  tests::expect_message(problem_of([] {
                          rendered(
                              "{% for x in [[1], 2] recursive %}\n{{ loop(x) if x is iterable }}"
                              "\n{{ x + 1 }}{% endfor %}");
                        }),
                        "line 3", {"list", "int"});
}

TEST(Template, TellsWhatAModelSays) {
  const auto made = Template::parse(
      "u{% for x in [1, 2] %}<{% generation %}é{{ x }}{% endgeneration %}>{% endfor %}");
  EXPECT_TRUE(made.has_generation());
  const Rendered text = made.render({}, 0);
  EXPECT_EQ(text.text, "u<é1><é2>");
  const std::vector<std::pair<std::size_t, std::size_t>> expected = {{2, 5}, {7, 10}};
  EXPECT_EQ(text.generations, expected);
  EXPECT_FALSE(Template::parse("generation").has_generation());
}

TEST(Template, KnowsNothingOfAnotherRendering) {
  const auto made = Template::parse("{% if not x is defined %}new{% set x = 1 %}{% endif %}");
  EXPECT_EQ(made.render({}, 0).text, "new");
  EXPECT_EQ(made.render({}, 0).text, "new");
}

TEST(Template, WritesTheDayItIsTold) {
  const auto made = Template::parse("{{ strftime_now('%Y') }}");
  EXPECT_EQ(made.render({}, 86400 * 200).text, "1970");
  EXPECT_EQ(made.render({}, std::int64_t{86400} * 20000).text, "2024");
}

}  // namespace
}  // namespace finetune::jinja::template_test
