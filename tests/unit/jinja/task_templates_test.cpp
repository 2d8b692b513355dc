// SPDX-License-Identifier: Apache-2.0
// Templates of tasks give the text that Python's jinja2 gives as lm-evaluation-harness sets it up:
// Environment(undefined=StrictUndefined, keep_trailing_newline=True).
#include <gtest/gtest.h>

#include <string>

#include "jinja/template.hpp"

namespace finetune::jinja::task_templates_test {
namespace {

std::string rendered(const std::string& text) {
  const auto names = nlohmann::ordered_json::parse(
      R"({"a": 1, "d": {"k": 1}, "l": [1, 2], "o": [{"n": "x"}, {}], "n": null})");
  return Template::parse(text, for_tasks).render(Value::from_json(names).mapping(), 0).text;
}

/// The name that is undefined.
std::string undefined_in(const std::string& text) {
  try {
    return "text: " + rendered(text);
  } catch (const UndefinedProblem& problem) {
    return problem.name();
  }
}

struct Case {
  const char* text;
  const char* expected;
};

TEST(TaskTemplate, KeepsLinesAndSpaces) {
  constexpr Case all[] = {
      {"### Response:\n", "### Response:\n"},
      {"a\n\n", "a\n\n"},
      {"{% if a %}\nx\n{% endif %}\n", "\nx\n\n"},
      {"x\n  {% if a %}\n  y\n  {% endif %}\nz\n", "x\n  \n  y\n  \nz\n"},
      {"x\n  {%- if a -%}\n  y\n  {%- endif %}\nz\n", "xy\nz\n"},
      {"{%+ if a +%}\n b{%+ endif +%}\n", "\n b\n"},
      {"x\n  {# c #}\ny", "x\n  \ny"},
      {"{% raw %}\n{{ x }}\n{% endraw %}\nz\n", "\n{{ x }}\n\nz\n"},
      {"a\r\nb\r", "a\nb\n"},
  };
  for (const Case& one : all)
    EXPECT_EQ(rendered(one.text), one.expected) << one.text;
}

TEST(TaskTemplate, MayAskWhetherSomethingIsThere) {
  constexpr Case all[] = {
      {"{{ x is defined }} {{ x is undefined }} {{ d.x is defined }}", "False True False"},
      {"{{ x | default('q') }}{{ d.x | d('q') }}{{ x | default('r', true) }}", "qqr"},
      {"{{ o[1].n | default('none') }} {{ l[5] | default(0) }}", "none 0"},
      {"{{ o | map(attribute='n', default='-') | join }}", "x-"},
      {"{{ o | selectattr('n', 'defined') | list }}", "[{'n': 'x'}]"},
      {"{{ o | map(attribute='n') | list }} {{ [x] }}", "['x', Undefined] [Undefined]"},
      {"{{ 'b' if not a }}", ""},
      {"{% set y = x %}{{ x is not defined or x }}", "True"},
      {"{% macro f(p) %}{{ p is defined }}{% endmacro %}{{ f() }}{{ f(1) }}", "FalseTrue"},
      {"{{ x is none }} {{ x is sequence }} {{ x is string }} {{ x is number }}",
       "False False False False"},
      {"{{ x is true }} {{ x is mapping }} {{ x is sameas 1 }} {{ x is callable }}",
       "False False False True"},
      {"{% for i in l %}{{ loop.previtem is defined }}{% endfor %}", "FalseTrue"},
      {"{{ x | items | list }} {{ d.get('x') }} {{ n }}", "[] None None"},
  };
  for (const Case& one : all)
    EXPECT_EQ(rendered(one.text), one.expected) << one.text;
}

TEST(TaskTemplate, EndsWhereItUsesWhatIsNotThere) {
  for (const char* text : {"{{ x }}",
                           "{% if x %}1{% endif %}",
                           "{% for i in x %}{% endfor %}",
                           "{{ x == 1 }}",
                           "{{ 1 != x }}",
                           "{{ x < 1 }}",
                           "{{ x or 'b' }}",
                           "{{ not x }}",
                           "{{ x ~ 'a' }}",
                           "{{ x + 1 }}",
                           "{{ -x }}",
                           "{{ x | length }}",
                           "{{ x | trim }}",
                           "{{ x | list }}",
                           "{{ x | join }}",
                           "{{ [x] | join }}",
                           "{{ x | select | list }}",
                           "{{ x | reverse }}",
                           "{{ x | first }}",
                           "{{ x | upper }}",
                           "{{ x | e }}",
                           "{{ x | string }}",
                           "{{ x | int }}",
                           "{{ x | tojson }}",
                           "{{ {'k': x} | tojson }}",
                           "{{ '%s' % x }}",
                           "{{ x in [1] }}",
                           "{{ 1 in x }}",
                           "{{ x is iterable }}",
                           "{{ x is eq 1 }}",
                           "{{ x is lower }}",
                           "{{ x() }}",
                           "{{ x[1] }}",
                           "{{ x.y | default('q') }}",
                           "{{ d[x] }}",
                           "{{ a if x else 2 }}",
                           "{% for i in l if x %}{% endfor %}",
                           "{% with y = x %}{{ y }}{% endwith %}",
                           "{% set y = x %}{{ y }}",
                           "{% macro f(p) %}{{ p }}{% endmacro %}{{ f(x) }}",
                           "{% filter upper %}{{ x }}{% endfilter %}"})
    EXPECT_EQ(undefined_in(text), "x") << text;
}

TEST(TaskTemplate, NamesWhatIsNotThere) {
  constexpr Case all[] = {
      {"{{ d.x }}", "\"x\" of a dict"},
      {"{{ d['x'] }}", "\"x\" of a dict"},
      {"{{ d.x.y | default('q') }}", "\"x\" of a dict"},
      {"{{ o | map(attribute='n') | join }}", "\"n\" of a dict"},
      {"{{ (o | map(attribute='n') | list)[1] }}", "\"n\" of a dict"},
      {"{{ o | selectattr('n') | list }}", "\"n\" of a dict"},
      {"{{ o | sort(attribute='n') | list }}", "\"n\" of a dict"},
      {"{{ o | groupby('n') }}", "\"n\" of a dict"},
      {"{{ o | unique(attribute='n') | list }}", "\"n\" of a dict"},
      {"{{ l[5] }}", "\"5\" of a list"},
      {"{{ [] | first }}", "the first element of nothing"},
      {"{{ [] | max }}", "the max of nothing"},
      {"{% macro f(p) %}{{ p }}{% endmacro %}{{ f() }}", "\"p\" of the macro f"},
      {"{% for i in l %}{{ loop.previtem }}{% endfor %}", "loop.previtem"},
      {"{% for i in l %}{{ i }}{% endfor %}{{ i }}", "i"},
  };
  for (const Case& one : all)
    EXPECT_EQ(undefined_in(one.text), one.expected) << one.text;
  try {
    rendered("a\n{{ x }}");
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Problem& problem) {
    EXPECT_STREQ(problem.what(), "line 2: x is undefined");
  }
}

TEST(TaskTemplate, IsNoChatTemplate) {
  const auto chat =
      Template::parse("{{ x }}{% if x or x == 1 %}1{% endif %}\n a\n{% if y %}\n{% endif %}\n");
  EXPECT_EQ(chat.render({}, 0).text, " a\n");
}

}  // namespace
}  // namespace finetune::jinja::task_templates_test
