// SPDX-License-Identifier: Apache-2.0
// Every template, also without its marks, as Python's Jinja reads it, set up as the Hugging Face
// library does.
#include <gtest/gtest.h>

#include <fstream>

#include "core/error.hpp"
#include "data/text/model_template.hpp"
#include "modules/templates/chats.hpp"
#include "support/folders.hpp"
#include "support/run_program.hpp"
#include "unit/data/fake.hpp"

namespace finetune::tests::jinja_test {
namespace {

using data::OrderedJson;

const std::string script = source_folder() / "tests/modules/templates/render.py";

/// What our renderer writes; null for what it refuses.
OrderedJson rendered(const data::ChatTemplate& chat, const data::Conversation& conversation,
                     bool with_prompt) {
  try {
    if (with_prompt) return joined(render_prompt(chat, conversation, "c.json:1"));
    return joined(render(chat, conversation, data::TrainOn::all, "c.json:1").segments);
  } catch (const core::Error&) {
    return nullptr;
  }
}

OrderedJson cases() {
  std::ifstream file(source_folder() / "tests/golden/templates/rendered.json");
  const OrderedJson golden = OrderedJson::parse(file);
  OrderedJson all = OrderedJson::array();
  for (const data::ChatTemplate& unbound : templates::all()) {
    const data::ChatTemplate chat = bound_template(unbound, "<B>", "</S>");
    for (const OrderedJson& source : golden.at("conversations")) {
      const data::Conversation talk = conversation(source);
      for (const bool with_prompt : {false, true}) {
        for (const std::string& text : {chat.text, data::without_marks(chat.text)})
          all.push_back({{"name", chat.name},
                         {"template", text},
                         {"messages", source.at("messages")},
                         {"tools", source.value("tools", OrderedJson())},
                         {"prompt", with_prompt},
                         {"expected", rendered(chat, talk, with_prompt)}});
      }
    }
  }
  return all;
}

TEST(JinjaTemplates, WriteWhatOurRendererWrites) {
  const TemporaryFolder folder;
  if (run_program({"python3", "-c", "import jinja2"}, folder.path()).exit_code != 0)
    GTEST_SKIP() << "python3 has no jinja2";
  const OrderedJson all = cases();
  folder.write("cases.json", all.dump());
  const Outcome outcome = run_program({"python3", script, "cases.json"}, folder.path());
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const OrderedJson written = OrderedJson::parse(outcome.out);
  ASSERT_EQ(written.size(), all.size());
  int compared = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(written[i], all[i].at("expected"))
        << all[i].at("name") << all[i].at("messages") << all[i].at("prompt");
    compared += written[i].is_string() ? 1 : 0;
  }
  EXPECT_GE(compared, 2 * 13 * 12);
}

TEST(JinjaTemplates, AreHandedOnWithoutMarks) {
  EXPECT_EQ(data::without_marks("a{%- generation -%} {% generation_ %}{%endgeneration+%}{% if"),
            "a{#- generation -#} {% generation_ %}{#endgeneration+#}{% if");
  for (const data::ChatTemplate& chat : templates::all())
    EXPECT_FALSE(jinja::Template::parse(data::without_marks(chat.text)).has_generation())
        << chat.name;
}

/// A template that is sensitive to lines, with names that it is given or not.
TEST(JinjaTemplates, HaveDefaults) {
  const OrderedJson kwargs = {{"mood", "calm \"%}\" 'ü'\n\\"},
                              {"is_short", false},
                              {"limits", {{"low", -2}, {"high", {1.5, 1e300}}}},
                              {"unused", 3},
                              {"not", true}};
  const std::string body =
      "\n  {% macro say(text) %}{{ mood }}{{ text }}{% endmacro %}\n"
      "{% for m in messages %}{{ say(m.content) }}{{ limits.low }}{{ limits.high[1] }}"
      "{{ 'short' if is_short }}{{ not false }}{{ eos_token }}{% endfor %}";
  OrderedJson all = OrderedJson::array();
  for (const std::string& text : {body, "  {% if true %}" + body + "{% endif %}"}) {
    const std::string with = data::with_defaults(text, kwargs);
    EXPECT_NE(with, text);
    EXPECT_EQ(with.find("unused"), std::string::npos);
    data::ChatTemplate given = bound_template({"t", text}, "<B>", "</S>");
    data::ChatTemplate has = bound_template({"t", with}, "<B>", "</S>");
    data::Conversation talk{{{data::ChatRole::user, "Hi"}}, {}};
    const OrderedJson plain = rendered(given, talk, true);
    given.kwargs = kwargs;
    const OrderedJson expected = rendered(given, talk, true);
    EXPECT_NE(expected, plain);
    EXPECT_EQ(rendered(has, talk, true), expected);
    all.push_back({{"template", with},
                   {"messages", {{{"role", "user"}, {"content", "Hi"}}}},
                   {"tools", nullptr},
                   {"prompt", true},
                   {"expected", expected}});
    // What is said comes over it.
    talk.template_kwargs = given.kwargs = {{"mood", "glad"}, {"is_short", true}, {"limits", {}}};
    has.kwargs = {{"mood", "sad"}};
    EXPECT_EQ(rendered(has, talk, true), rendered(given, talk, true));
  }
  EXPECT_EQ(data::with_defaults("{% another %}{{ mood }}", kwargs), "{% another %}{{ mood }}");
  EXPECT_EQ(data::with_defaults("{{ moods }}", kwargs), "{{ moods }}");
  const TemporaryFolder folder;
  if (run_program({"python3", "-c", "import jinja2"}, folder.path()).exit_code != 0)
    GTEST_SKIP() << "python3 has no jinja2";
  folder.write("cases.json", all.dump());
  const Outcome outcome = run_program({"python3", script, "cases.json"}, folder.path());
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const OrderedJson written = OrderedJson::parse(outcome.out);
  for (std::size_t i = 0; i < all.size(); ++i)
    EXPECT_EQ(written[i], all[i].at("expected"));
}

}  // namespace
}  // namespace finetune::tests::jinja_test
