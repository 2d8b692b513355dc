// SPDX-License-Identifier: Apache-2.0
// Where the parts of a rendered text come from, through operators, filters and methods.
#include <gtest/gtest.h>

#include <string>

#include "core/ordered_json.hpp"
#include "jinja/template.hpp"

namespace finetune::jinja::origins_test {
namespace {

/// The text with what data say in [ ], of `said`: " ab-cD " of element 3.
std::string marked(const std::string& expression) {
  Mapping names;
  names.set("said", Text(" ab-cD ", {.element = 3, .field = 1}));
  names.set("list", Value::from_json(nlohmann::ordered_json::parse(R"(["x", {"k": "y"}])"),
                                     {.element = 4, .field = 2}));
  const Rendered rendered = Template::parse("{{ " + expression + " }}").render(names, 0);
  std::string text;
  std::size_t begin = 0;
  for (const Piece& piece : rendered.pieces) {
    const std::string part = rendered.text.substr(begin, piece.end - begin);
    text += piece.origin.is_data() ? "[" + part + "]" : part;
    begin = piece.end;
  }
  return text + rendered.text.substr(begin);
}

TEST(Origins, AreKeptByOperators) {
  EXPECT_EQ(marked("'<' + said + '>'"), "<[ ab-cD ]>");
  EXPECT_EQ(marked("'<' ~ said ~ 7"), "<[ ab-cD ]7");
  EXPECT_EQ(marked("'%s|%s|%d' % (said, 'a', 1)"), "[ ab-cD ]|a|1");
  EXPECT_EQ(marked("said * 2"), "[ ab-cD  ab-cD ]");
  EXPECT_EQ(marked("(said ~ '!')[4:]"), "[cD ]!");
  EXPECT_EQ(marked("said[1] ~ said[-2:] ~ '.'"), "[aD ].");
}

TEST(Origins, AreKeptByMethods) {
  EXPECT_EQ(marked("'<' ~ said.strip() ~ said.lstrip(' a')"), "<[ab-cDb-cD ]");
  EXPECT_EQ(marked("(said ~ '-z').split('-') | join('|')"), "[ ab]|[cD ]|z");
  EXPECT_EQ(marked("'+'.join(said.split())"), "[ab-cD]");
  EXPECT_EQ(marked("said.replace('-', '<>')"), "[ ab]<>[cD ]");
  EXPECT_EQ(marked("'a-b'.replace('-', said)"), "a[ ab-cD ]b");
  EXPECT_EQ(marked("said.upper() ~ 'x'.upper()"), "[ AB-CD ]X");
  EXPECT_EQ(marked("'{}:{}'.format(said, 'a')"), "[ ab-cD ]:a");
  EXPECT_EQ(marked("said.partition('-')[2] ~ '.'"), "[cD ].");
  EXPECT_EQ(marked("said.removeprefix(' a').removesuffix(' ')"), "[b-cD]");
  EXPECT_EQ(marked("(said ~ '\\n.').splitlines()[1] ~ said.splitlines()[0]"), ".[ ab-cD ]");
  EXPECT_EQ(marked("said.center(9)"), " [ ab-cD ] ");
  EXPECT_EQ(marked("said.rsplit('-', 1)[0] ~ '.'"), "[ ab].");
}

TEST(Origins, AreKeptByFilters) {
  EXPECT_EQ(marked("said | trim ~ '<' | trim"), "[ab-cD]<");
  EXPECT_EQ(marked("said | replace('ab', '#')"), "[ ]#[-cD ]");
  EXPECT_EQ(marked("[said, 'a'] | join(', ')"), "[ ab-cD ], a");
  EXPECT_EQ(marked("said | reverse"), "[ Dc-ba ]");
  EXPECT_EQ(marked("said | title ~ said | lower"), "[ Ab-Cd  ab-cd ]");
  EXPECT_EQ(marked("said | string ~ said | length"), "[ ab-cD ]7");
  EXPECT_EQ(marked("('a\\n' ~ said) | indent(2)"), "a\n[   ab-cD ]");
}

TEST(Origins, AreKeptByFormats) {
  EXPECT_EQ(marked("'<{:>8}|{:.3}|{:*^9}>'.format(said, said, said)"),
            "< [ ab-cD ]|[ ab]|*[ ab-cD ]*>");
  EXPECT_EQ(marked("'{0!r}{0!s}{1:03}'.format(said, 7)"), "[' ab-cD ' ab-cD ]007");
  EXPECT_EQ(marked("'{0[1][k]}.{l[0]:>2}'.format(list, l=list)"), "[y]. [x]");
  EXPECT_EQ(marked("(said ~ '{:{}}{{').format('a', '>3')"), "[ ab-cD ]  a{");
}

TEST(Origins, AreKeptByWrappedLines) {
  EXPECT_EQ(marked("(said ~ said) | wordwrap(6)"), "[ ab-cD\nab-cD]");
  EXPECT_EQ(marked("(said ~ '\\n\\nx yy' ~ said) | wordwrap(3)"), "[ab-\ncD]\n\nx\nyy\n[ab-\ncD]");
  EXPECT_EQ(marked("said | wordwrap(3, wrapstring='<>')"), "[ab-]<>[cD]");
}

TEST(Origins, OfALineEndThatIndentWritesAreThoseOfTheOneThatWasThere) {
  EXPECT_EQ(marked("('a\\r\\n' ~ said ~ '\\u2028' ~ said ~ '\\x85') | indent(1)"),
            "a\n[  ab-cD ]\n[  ab-cD ]\n");
  Mapping names;
  names.set("said", Text("a\r\nb\u2029c", {.element = 3, .field = 1}));
  const Rendered rendered = Template::parse("{{ said | indent(1) }}!").render(names, 0);
  EXPECT_EQ(rendered.text, "a\n b\n c!");
  ASSERT_EQ(rendered.pieces.size(), 2);
  EXPECT_EQ(rendered.pieces.front().end, 7);
  EXPECT_EQ(rendered.pieces.front().origin.element, 3);
}

/// An element of the data that says its number, with others inside of it.
Value element(std::int32_t number, std::vector<Value> replies = {}) {
  Mapping mapping;
  mapping.element = number;
  mapping.set("said", Text(std::to_string(number), {.element = number, .field = 1}));
  mapping.set("replies", std::move(replies));
  return mapping;
}

/// The text over such elements, each stretch of it behind the turn in which it was written.
std::string with_turns(const std::string& text) {
  Mapping names;
  names.set("tree",
            std::vector<Value>{element(0, {element(1, {element(2)}), element(3)}), element(4)});
  const Rendered rendered = Template::parse(text).render(names, 0);
  std::string marked;
  std::size_t begin = 0;
  std::int32_t turn = Origin::none;
  for (const Piece& piece : rendered.pieces) {
    if (piece.origin.turn != turn) marked += " " + std::to_string(piece.origin.turn) + "=";
    turn = piece.origin.turn;
    marked += rendered.text.substr(begin, piece.end - begin);
    begin = piece.end;
  }
  return marked;
}

TEST(Origins, OfARecursiveLoopAreThoseOfLoopsInEachOther) {
  const std::string expected = " 0=<0 1=<1 2=<2>. 1=>. 3=<3>. 0=>. 4=<4>.";
  EXPECT_EQ(with_turns("{% for m in tree %}<{{ m.said }}{% for m in m.replies %}<{{ m.said }}"
                       "{% for m in m.replies %}<{{ m.said }}>.{% endfor %}>.{% endfor %}>."
                       "{% endfor %}"),
            expected);
  EXPECT_EQ(with_turns("{% for m in tree recursive %}<{{ m.said }}{{ loop(m.replies) }}>."
                       "{% endfor %}"),
            expected);
  EXPECT_EQ(with_turns("{% for m in tree recursive %}<{{ m.said ~ loop(m.replies) ~ '>' }}."
                       "{% endfor %}"),
            expected);
  EXPECT_EQ(with_turns("{% for m in tree recursive %}{% set inner = loop(m.replies) %}<{{ m.said }}"
                       "{{ inner }}>.{% endfor %}"),
            expected);
}

TEST(Origins, OfJsonAndOfListsAreThoseOfTheDataInThem) {
  EXPECT_EQ(marked("list | tojson ~ '.'"), "[[\"x\", {\"k\": \"y\"}]].");
  EXPECT_EQ(marked("list[1].k ~ list | length"), "[y]2");
  EXPECT_EQ(marked("{'a': said} | tojson"), "[{\"a\": \" ab-cD \"}]");
  EXPECT_EQ(marked("{'a': 1} | tojson"), "{\"a\": 1}");
}

TEST(Origins, OfATextThatIsADictServeBothKindsOfTemplates) {
  const nlohmann::ordered_json json = {{"x", 1}};
  Mapping names;
  names.set("arguments", Value::text_and(Text("{\"x\":1.0}"), Value::from_json(json)));
  names.set("object", Value::from_json(json, {.element = 0, .field = 1}));
  const auto text = [&](const std::string& expression) {
    return Template::parse("{{ " + expression + " }}").render(names, 0).text;
  };
  EXPECT_EQ(text("'a' + arguments + arguments[1:]"), "a{\"x\":1.0}\"x\":1.0}");
  EXPECT_EQ(text("arguments | items | list"), "[('x', 1)]");
  EXPECT_EQ(text("arguments.items() | list ~ arguments.x ~ arguments['x']"), "[('x', 1)]11");
  EXPECT_EQ(text("arguments | tojson"), "{\"x\": 1}");
  EXPECT_EQ(text("arguments is string ~ (arguments is mapping) ~ (object is mapping)"),
            "TrueFalseTrue");
  EXPECT_EQ(text("'a' + object"), "a{\"x\": 1}");
  EXPECT_THROW(text("'a' + {'x': 1}"), Problem);
}

TEST(Origins, OfAListThatIsATextServeBothKindsOfTemplates) {
  const auto json = nlohmann::ordered_json::parse(R"([{"text": "a"}, {"text": "b"}])");
  Mapping names;
  names.set("parts", Value::text_and(Text("ab"), Value::from_json(json)));
  names.set("list", Value::from_json(json));
  names.set("empty", Value::text_and(Text(""), Value(std::vector<Value>())));
  const auto text = [&](const std::string& expression) {
    return Template::parse("{{ " + expression + " }}").render(names, 0).text;
  };
  // As the list answers.
  const auto is_that_of_a_list = [&](const std::string& expression) {
    std::string of_list = expression;
    for (std::size_t at = 0; (at = of_list.find("parts", at)) != std::string::npos;)
      of_list.replace(at, 5, "list");
    EXPECT_EQ(text(expression), text(of_list)) << expression;
  };
  for (const char* test : {"string", "iterable", "sequence", "mapping", "none", "defined", "number",
                           "lower", "true", "callable"})
    is_that_of_a_list(std::string("parts is ") + test);
  for (const char* expression : {"parts | length",
                                 "parts | count",
                                 "parts[1:] | tojson",
                                 "parts | reverse | list",
                                 "parts | tojson",
                                 "[parts]",
                                 "{'a': parts}",
                                 "parts == 'ab'",
                                 "parts == list",
                                 "list == parts",
                                 "parts != ''",
                                 "'a' in parts",
                                 "{'text': 'a'} in parts",
                                 "parts + [1]",
                                 "[1] + parts",
                                 "parts | list",
                                 "parts | first",
                                 "parts | map(attribute='text') | join",
                                 "parts | selectattr('text') | list",
                                 "parts.count(parts[0])",
                                 "parts.index(parts[1])",
                                 "parts | int",
                                 "parts | float",
                                 "parts[-1].text",
                                 "parts | default(7, true) | length",
                                 "[parts] | select('string') | list",
                                 "parts is eq(list)",
                                 "parts | batch(1) | list"})
    is_that_of_a_list(expression);
  EXPECT_EQ(text("(not empty) ~ (empty or 7) ~ (empty | length)"), "True70");
  // As the text does where lists fail, or would be printed.
  EXPECT_EQ(
      text("parts ~ '.' ~ (parts | trim) ~ (parts | upper) ~ parts.strip() ~ parts.split('a')"),
      "ab.abABab['', 'b']");
  EXPECT_EQ(text("'<' + parts + '>' + ('%s' % parts) + (parts | string)"), "<ab>abab");
  EXPECT_EQ(text("parts + parts"), "abab");
}

TEST(Origins, OfNumbersBeyondSixtyFourBitsAreTheirDigits) {
  const std::string digits = "20000000000000000000000";
  const nlohmann::ordered_json json = {{"wei", core::from_digits(digits)}};
  Mapping names;
  names.set("call", Value::from_json(json));
  EXPECT_EQ(Template::parse("{{ call.wei }} {{ call | tojson }} {{ call.wei is number }}")
                .render(names, 0)
                .text,
            digits + " {\"wei\": " + digits + "} True");
}

}  // namespace
}  // namespace finetune::jinja::origins_test
