// SPDX-License-Identifier: Apache-2.0
// Templates of people who mean harm, or who made a mistake: each ends with a problem, soon.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "jinja/template.hpp"

namespace finetune::jinja::limits_test {
namespace {

constexpr Limits few = {.most_steps = 100'000, .most_bytes = 1 << 20};

class Hostile : public testing::TestWithParam<const char*> {};

TEST_P(Hostile, EndsWithAProblem) {
  EXPECT_THROW(Template::parse(GetParam()).render({}, 0, few), Problem);
}

INSTANTIATE_TEST_SUITE_P(
    Templates, Hostile,
    testing::Values(
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "{{ 'x' * 2000000000000 }}",
        "{{ [1] * 2000000000000 }}", "{{ range(10 ** 12) }}", "{{ 9 ** 9 ** 9 }}",
        "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
        "{% for x in range(99999) recursive %}{{ loop(range(99999)) }}{% endfor %}",
        "{% set ns = namespace() %}{% for x in [1] recursive %}{% set ns.l = loop %}{% endfor %}"
        "{{ ns.l([2]) }}{{ ns.l([2], 3) }}",
        "{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}"
        "{% endfor %}",
        "{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}"
        "{% endfor %}",
        "{% set ns = namespace(x='ab') %}{% for i in range(60) %}"
        "{% set ns.x = ns.x|replace('a', 'aabb') %}{% endfor %}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}"
        "{% endfor %}",
        "{% set ns = namespace(x=[]) %}{% for i in range(200) %}{% set ns.x = [ns.x] %}"
        "{% endfor %}{{ ns.x }}",
        "{{ '{:999999999999999999999}'.format(1) }}", "{{ '{:1000001}'.format('x') }}",
        "{{ '{:.1001f}'.format(1.5) }}", "{{ ('{0:1000000}' * 9999).format(1) }}",
        "{{ ('{0}' * 9999).format('x' * 9999) }}", "{{ '{:{:{:{}}}}'.format(1, 2, 3, 4) }}",
        "{{ '{99999999999999999999}'.format(1) }}", "{{ [1] | slice(1000000000) }}",
        "{{ 'x'.center(1000000000) }}", "{{ ('x ' * 9999) | wordwrap(1, wrapstring='x' * 9999) }}",
        "{{ '%99999999999d' % 1 }}", "{% for a in range(99999) %}{{ 'x' * 1000 }}{% endfor %}",
        "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}",
        "{{ [[1]]|map(attribute='99999999999999999999.x')|join }}",
        "{{ [[1]]|map(attribute='0..\u0663')|join }}",
        "{{ [[1]]|map(attribute='\u00b2.x')|join }}"));

TEST(Hostile, NumbersBeyondAllBoundsAreTexts) {
  const auto text = [](const char* of) { return Template::parse(of).render({}, 0, few).text; };
  EXPECT_EQ(text("{{ (1e308 * 10)|round }} {{ 1e308|round(30) > 1 }} {{ 5e-324|round(30) }}"),
            "inf True 0.0");
  EXPECT_EQ(text("{{ 5e-324 }} {{ 1e308 }} {{ 1e16 }} {{ 1e15 }} {{ 0.0001 }} {{ 0.00001 }}"),
            "5e-324 1e+308 1e+16 1000000000000000.0 0.0001 1e-05");
  EXPECT_EQ(text("{{ [[1]]|map(attribute='9999999999')|list }}"), "[Undefined]");
}

// Sanitizers count what is left; of one they may find a trace and say nothing.
TEST(Hostile, NamespacesThatHoldThemselvesAreFreed) {
  const Template once = Template::parse(
      "{% set ns = namespace() %}{% set ns.x = ns %}{% set ns.y = [ns, namespace(of=ns)] %}x");
  const Template loops = Template::parse(
      "{% set ns = namespace() %}{% for y in [[1]] recursive %}{% set ns.l = loop %}"
      "{% set own = loop %}{{ loop(y) if y is iterable }}{% endfor %}x");
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(once.render({}, 0, few).text, "x");
    EXPECT_EQ(loops.render({}, 0, few).text, "x");
  }
}

TEST(Hostile, TextsThatNestWithoutEndAreNoTemplates) {
  const auto repeated = [](const std::string& text, int times) {
    std::string all;
    for (int i = 0; i < times; ++i)
      all += text;
    return all;
  };
  EXPECT_THROW(Template::parse("{{ " + repeated("(", 100'000)), Problem);
  EXPECT_THROW(Template::parse("{{ " + repeated("-", 100'000) + "1 }}"), Problem);
  EXPECT_THROW(Template::parse("{{ " + repeated("not ", 100'000) + "1 }}"), Problem);
  EXPECT_THROW(Template::parse(repeated("{% if x %}", 100'000)), Problem);
  // Rows of parts nest in the tree, too.
  for (const char* part : {".a", "[0]", "[1:]", "+1", "-1", "*1", "/1", "**1", "~'a'", "|lower",
                           "()", " and 1", " or 1", " is defined", " if 1", "|lower()"}) {
    EXPECT_THROW(Template::parse("{{ x" + repeated(part, 50'000) + " }}"), Problem) << part;
    EXPECT_THROW(Template::parse("{% if x" + repeated(part, 50'000) + " %}{% endif %}"), Problem);
    EXPECT_THROW(
        Template::parse("{{ [x" + repeated(part, 300) + ", y" + repeated(part, 300) + "] }}"),
        Problem)
        << part;
    EXPECT_NO_THROW(
        Template::parse("{{ x" + repeated(part, 400) + " }}{{ y" + repeated(part, 400) + " }}"))
        << part;
  }
  EXPECT_EQ(Template::parse("{{ 1" + repeated("+1", 499) + " }}").render({}, 0, few).text, "500");
}

}  // namespace
}  // namespace finetune::jinja::limits_test
