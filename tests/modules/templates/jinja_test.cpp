// SPDX-License-Identifier: Apache-2.0
// The Jinja text of every template against our own renderer: Python's Jinja reads it as the
// Hugging Face library does.
#include <gtest/gtest.h>

#include <fstream>

#include "core/error.hpp"
#include "data/text/jinja.hpp"
#include "data/text/model_template.hpp"
#include "modules/templates/jinja_chats.hpp"
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

bool has_reasoning(const data::Conversation& conversation) {
  return std::ranges::any_of(conversation.messages, [](const data::ChatMessage& message) {
    return !message.reasoning.empty();
  });
}

OrderedJson cases() {
  std::ifstream file(source_folder() / "tests/golden/templates/rendered.json");
  const OrderedJson golden = OrderedJson::parse(file);
  OrderedJson all = OrderedJson::array();
  for (const data::ChatTemplate& unbound : templates::all()) {
    const data::ChatTemplate chat = unbound.with_tokens("<B>", "</S>");
    for (const OrderedJson& source : golden.at("conversations")) {
      const data::Conversation talk = conversation(source);
      for (const bool with_prompt : {false, true}) {
        const auto add = [&](std::string_view text) {
          all.push_back({{"name", chat.name},
                         {"template", text},
                         {"messages", source.at("messages")},
                         {"tools", source.value("tools", OrderedJson())},
                         {"prompt", with_prompt},
                         {"expected", rendered(chat, talk, with_prompt)}});
        };
        add(jinja_text(chat.name));
        // Reasoning is left out there, where we refuse it.
        if (chat.thinks || !has_reasoning(talk)) add(data::to_jinja(unbound));
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

TEST(JinjaTemplates, AreRecognisedAgain) {
  const std::vector<data::ChatTemplate> all = templates::all();
  for (const data::ChatTemplate& chat : all) {
    const data::ChatTemplate* found = data::recognise(data::to_jinja(chat), all);
    ASSERT_NE(found, nullptr) << chat.name;
    EXPECT_EQ(found->name, chat.name);
  }
}

TEST(JinjaTemplates, QuoteWhatJinjaWouldRead) {
  const auto chat = data::ChatTemplate::parse(
      "odd",
      "[template]\nstop = \"{eos}\"\n[user]\nbefore = \"it's \\\\ {bos}\\n\"\n"
      "[assistant]\nafter = \"{eos}\"\n");
  EXPECT_NE(data::to_jinja(chat).find(R"('it\'s \\ ' + (bos_token or '') + '\n')"),
            std::string::npos)
      << data::to_jinja(chat);
}

}  // namespace
}  // namespace finetune::tests::jinja_test
