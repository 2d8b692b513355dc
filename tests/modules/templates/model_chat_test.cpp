// SPDX-License-Identifier: Apache-2.0
// Conversations as a model's own template writes them: beside what this program writes by the
// templates that it knows, of which it makes Jinja texts.
#include "data/text/detail/model_chat.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "core/error.hpp"
#include "data/text/jinja.hpp"
#include "data/text/model_template.hpp"
#include "modules/templates/chats.hpp"
#include "support/folders.hpp"
#include "unit/data/fake.hpp"

namespace finetune::tests::model_chat_test {
namespace {

using data::OrderedJson;
using data::Segment;
using data::TrainOn;

const OrderedJson& conversations() {
  static const OrderedJson all =
      OrderedJson::parse(std::ifstream(source_folder() / "tests/golden/templates/rendered.json"));
  return all.at("conversations");
}

data::ModelChat::Names names_of(const std::string& bos, const std::string& eos,
                                std::vector<std::string> special) {
  data::ModelChat::Names names{.bos = bos, .eos = eos, .ends = {finder_of(special), {}}};
  for (std::size_t i = 0; i < special.size(); ++i)
    if (special[i] == eos) names.ends.ids.push_back(static_cast<std::int32_t>(i));
  return names;
}

/// A model's own, in Jinja.
data::ChatTemplate own_template(const std::string& jinja, const std::string& eos,
                                std::vector<std::string> special) {
  data::ChatTemplate own;
  own.name = "the model's own";
  own.text = jinja;
  own.model = std::make_shared<const data::ModelChat>(jinja, names_of("<B>", eos, std::move(special)));
  return own;
}

/// What is trained, and what is markup, character by character.
struct Written {
  std::string text, trained, markup;
};

Written written(const std::vector<Segment>& segments) {
  Written all;
  for (const Segment& segment : segments) {
    all.text += segment.text;
    all.trained += std::string(segment.text.size(), segment.trained ? 't' : '.');
    all.markup += std::string(segment.text.size(), segment.markup ? 'm' : '.');
  }
  return all;
}

std::optional<Written> rendered(const data::ChatTemplate& chat, const OrderedJson& source) {
  try {
    return written(render(chat, conversation(source), TrainOn::answers, "c.json:1").segments);
  } catch (const core::Error&) {
    return std::nullopt;
  }
}

TEST(ModelChat, WritesAndTrainsWhatTheKnownTemplateDoes) {
  int num_equal = 0, num_unclear = 0;
  for (const data::ChatTemplate& unbound : templates::all()) {
    const data::ChatTemplate known = unbound.with_tokens("<B>", "</S>");
    const data::ChatTemplate own = as_model(unbound);
    for (const OrderedJson& source : conversations()) {
      const auto expected = rendered(known, source), found = rendered(own, source);
      if (!expected) continue;
      if (!found) {
        ++num_unclear;
        continue;
      }
      const std::string label = known.name + source.dump();
      EXPECT_EQ(found->text, expected->text) << label;
      // Of an empty answer Llama 2's known template also trains the space before its end.
      if (conversation(source).messages.back().text.empty()) continue;
      EXPECT_EQ(found->trained, expected->trained) << label << "\n" << found->text;
      ++num_equal;
    }
  }
  EXPECT_GE(num_equal, 100);
  EXPECT_LE(num_unclear, num_equal / 10);
}

TEST(ModelChat, TellsWhatIsSaidFromWhatTheTemplateAdds) {
  data::ChatTemplate chat;
  chat.stop = "<e>";
  chat.model = std::make_shared<const data::ModelChat>(
      "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}<e>\n{% endfor %}"
      "{% if add_generation_prompt %}<assistant>{% endif %}",
      "", "<e>");
  const data::Conversation talk{
      {{data::ChatRole::user, " <e> <user> "}, {data::ChatRole::assistant, "yes\n"}}, {}};
  const Written all = written(render(chat, talk, TrainOn::answers, "x").segments);
  EXPECT_EQ(all.text, "<user><e> <user><e>\n<assistant>yes<e>\n");
  EXPECT_EQ(all.markup, "mmmmmm..........mmmmmmmmmmmmmmm...mmmm");
  EXPECT_EQ(all.trained, "...............................tttttt.");
}

TEST(ModelChat, TrainsWhatTheTemplateMarks) {
  data::ChatTemplate chat;
  chat.model = std::make_shared<const data::ModelChat>(
      "{% for m in messages %}{% if m.role == 'assistant' %}<{% generation %}{{ m.content }}!"
      "{% endgeneration %}>{% else %}[{{ m.content }}]{% endif %}{% endfor %}",
      "", "");
  const data::Conversation talk{{{data::ChatRole::user, "q"}, {data::ChatRole::assistant, "a"}},
                                {}};
  const Written all = written(render(chat, talk, TrainOn::answers, "x").segments);
  EXPECT_EQ(all.text, "[q]<a!>");
  EXPECT_EQ(all.trained, "....tt.");
}

TEST(ModelChat, RefusesWhatIsNotClear) {
  data::ChatTemplate chat;
  chat.stop = "<e>";
  chat.model = std::make_shared<const data::ModelChat>(
      "{{ messages | length }}{% for m in messages %}{{ m.content }}<e>{% endfor %}", "", "");
  const data::Conversation talk{{{data::ChatRole::user, "q"}, {data::ChatRole::assistant, "a"}},
                                {}};
  try {
    render(chat, talk, TrainOn::answers, "x.json:3");
    FAIL();
  } catch (const core::Error& error) {
    EXPECT_EQ(std::string(error.what()).find("x.json:3: which tokens message 2 (assistant) adds"),
              0U)
        << error.what();
  }
}

TEST(ModelChat, FindsTheTokenThatEndsAnAnswer) {
  const data::ModelChat chat("{% for m in messages %}<s>{{ m.content }} <end>\n{% endfor %}", "",
                             "<x>");
  const auto is_special = [](std::string_view text) {
    return text.find("<end>") != std::string_view::npos;
  };
  EXPECT_EQ(chat.stop(is_special), "<end>");
  EXPECT_EQ(chat.stop([](std::string_view) { return false; }), "<x>");
}

}  // namespace
}  // namespace finetune::tests::model_chat_test
