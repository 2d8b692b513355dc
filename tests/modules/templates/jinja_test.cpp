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

}  // namespace
}  // namespace finetune::tests::jinja_test
