// SPDX-License-Identifier: Apache-2.0
// Messages of roles that only some templates know, and content in parts, as templates see them.
#include "data/text/detail/roles.hpp"

#include <gtest/gtest.h>

#include "core/error.hpp"
#include "modules/templates/chats.hpp"
#include "support/messages.hpp"

namespace finetune::tests::roles_test {
namespace {

using data::ChatRole;
using data::TrainOn;

data::ChatTemplate own_template(const std::string& jinja) {
  data::ChatWriter::Names names;
  names.eos = "<e>";
  names.ends.find = finder_of({"<e>", "<a>", "<u>"});
  names.ends.ids = {0};
  data::ChatTemplate own;
  own.name = "the model's own";
  own.text = jinja;
  own.writer = std::make_shared<const data::ChatWriter>(jinja, std::move(names));
  return own;
}

data::Conversation talk(std::string_view messages) {
  return conversation(data::OrderedJson::parse("{\"messages\": [" + std::string(messages) + "]}"));
}

/// What of a conversation is written: "text", "trained", and what was left out.
struct Written {
  std::string text, trained, left_out;
};

Written written(const data::ChatTemplate& chat, std::string_view messages) {
  data::Conversation settled = talk(messages);
  Written made;
  made.left_out = data::settle_roles(chat, TrainOn::answers, "x.jsonl:3", settled).value_or("");
  for (const data::Segment& segment :
       data::render(chat, settled, TrainOn::answers, "x.jsonl:3").segments) {
    made.text += segment.text;
    if (segment.trained) made.trained += segment.text;
  }
  return made;
}

std::string text_of(const data::ChatTemplate& chat, std::string_view messages) {
  return written(chat, messages).text;
}

/// Writes every message with its role.
const std::string any_role =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}<e>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";

/// Two messages and an answer; the first has another role.
std::string first_of(const std::string& role) {
  return R"({"role": ")" + role +
         R"(", "content": "n"}, {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"})";
}

TEST(Roles, ReachAModelsOwnTemplateAsTheDataSayThem) {
  const data::ChatTemplate chat = own_template(any_role);
  for (const std::string role : {"critic",
                                 "document",
                                 "documents",
                                 "control",
                                 "context",
                                 "environment",
                                 "latest_reminder",
                                 "available_tools",
                                 "planner",
                                 "think",
                                 "ai",
                                 "developer",
                                 "function",
                                 "ipython",
                                 "observation",
                                 "tool_response",
                                 "Critic",
                                 "rôle",
                                 "tool",
                                 "system"}) {
    const Written made = written(chat, first_of(role));
    EXPECT_EQ(made.text, "<" + role + ">n<e><user>q<e><assistant>a<e>");
    EXPECT_EQ(made.trained, "a<e>") << role;
    EXPECT_EQ(made.left_out, "") << role;
  }
}

TEST(Roles, OfQuestionAndAnswerHaveOneNameEach) {
  const data::ChatTemplate chat = own_template(any_role);
  EXPECT_EQ(text_of(chat, R"({"role": "human", "content": "q"}, {"role": "GPT", "content": "a"})"),
            "<user>q<e><assistant>a<e>");
  EXPECT_EQ(
      text_of(chat, R"({"role": "Developer", "content": "s"}, {"role": "User", "content": "q"},
                             {"role": "model", "content": "a"})"),
      "<developer>s<e><user>q<e><assistant>a<e>");
}

TEST(Roles, ThatATemplateNamesHaveTheirBranch) {
  const data::ChatTemplate chat = own_template(
      "{% for m in messages %}{% if m.role == 'function' %}[{{ m.name }}] {% elif m.role in "
      "['user', 'assistant'] %}<{{ m.role[0] }}>{% else %}{{ raise_exception('no') }}{% endif %}"
      "{{ m.content }}<e>{% endfor %}{% if add_generation_prompt %}<a>{% endif %}");
  EXPECT_EQ(text_of(chat, R"({"role": "user", "content": "q"},
                             {"role": "function", "name": "f", "content": "r"},
                             {"role": "assistant", "content": "a"})"),
            "<u>q<e>[f] r<e><a>a<e>");
}

/// Refuses all but the four roles, and "critic".
const std::string five_roles =
    "{% for m in messages %}{% if m.role not in ['system', 'user', 'assistant', 'tool', 'critic'] "
    "%}{{ raise_exception('unknown role ' ~ m.role) }}{% endif %}<{{ m.role[0] }}>{{ m.content }}"
    "<e>{% endfor %}{% if add_generation_prompt %}<a>{% endif %}";

TEST(Roles, ThatATemplateRefusesAreThoseThatTheirNamesStandFor) {
  const data::ChatTemplate chat = own_template(five_roles);
  EXPECT_EQ(text_of(chat, first_of("developer")), "<s>n<e><u>q<e><a>a<e>");
  EXPECT_EQ(text_of(chat, first_of("ipython")), "<t>n<e><u>q<e><a>a<e>");
  EXPECT_EQ(
      text_of(chat, R"({"role": "critic", "content": "n"}, {"role": "developer", "content": "s"},
                             {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"})"),
      "<c>n<e><s>s<e><u>q<e><a>a<e>");
}

TEST(Roles, ThatATemplateRefusesAreLeftOutAlone) {
  const data::ChatTemplate chat = own_template(five_roles);
  const Written made =
      written(chat, R"({"role": "user", "content": "q"}, {"role": "assistant", "content": "a"},
               {"role": "wizard", "content": "w"}, {"role": "critic", "content": "c"},
               {"role": "developer", "content": "s"}, {"role": "assistant", "content": "b"})");
  EXPECT_EQ(made.text, "<u>q<e><a>a<e><c>c<e><s>s<e><a>b<e>");
  EXPECT_EQ(made.trained, "a<e>");
  EXPECT_EQ(made.left_out, "message 3 has the role \"wizard\", which the chat template refuses");
  // Nothing could be learned from what stands behind the last answer.
  EXPECT_EQ(
      written(chat, R"({"role": "user", "content": "q"}, {"role": "assistant", "content": "a"},
                             {"role": "wizard", "content": "w"})")
          .left_out,
      "");
}

TEST(Roles, ThatATemplateDoesNotWrite) {
  const data::ChatTemplate chat = own_template(
      "{% for m in messages %}{% if m.role in ['system', 'user', 'assistant'] %}<{{ m.role[0] }}>"
      "{{ m.content }}<e>{% elif m.role == 'control' %}{% set mode = m.content %}<{{ mode | length "
      "}}>{% endif %}{% endfor %}{% if add_generation_prompt %}<a>{% endif %}");
  EXPECT_EQ(text_of(chat, first_of("developer")), "<s>n<e><u>q<e><a>a<e>");
  const Written ignored = written(chat, first_of("critic"));
  EXPECT_EQ(ignored.text, "<u>q<e><a>a<e>");
  EXPECT_EQ(ignored.trained, "");
  EXPECT_EQ(ignored.left_out,
            "message 1 has the role \"critic\", which the chat template does not write");
  const Written calls =
      written(chat, R"({"role": "user", "content": "q"}, {"role": "agent", "content": null,
                        "tool_calls": [{"function": {"name": "f", "arguments": {}}}]},
                       {"role": "assistant", "content": "a"})");
  EXPECT_EQ(calls.text, "<u>q<e><a>a<e>");
  EXPECT_EQ(calls.trained, "");
  // What it says is not written, and decides something all the same.
  const Written control = written(chat, first_of("control"));
  EXPECT_EQ(control.text, "<1><u>q<e><a>a<e>");
  EXPECT_EQ(control.trained, "a<e>");
}

TEST(Roles, OfTemplatesOfThisProgramAreFour) {
  const data::ChatTemplate chat = chat_template("chatml");
  EXPECT_EQ(text_of(chat, first_of("developer")), text_of(chat, first_of("system")));
  const Written made =
      written(chat, R"({"role": "user", "content": "q"}, {"role": "assistant", "content": "a"},
               {"role": "critic", "content": "c"}, {"role": "assistant", "content": "b"},
               {"role": "critic", "content": "d"})");
  EXPECT_EQ(made.text.find("critic"), std::string::npos);
  EXPECT_EQ(made.trained, "a<|im_end|>");
  EXPECT_EQ(made.left_out,
            "message 3 has the role \"critic\", which data.template = \"chatml\" does not know");
}

TEST(Roles, OfAllMessagesThatAreUnknownAreRefused) {
  const auto refusal = [](const data::ChatTemplate& chat, std::string_view messages) {
    try {
      written(chat, messages);
      return std::string("nothing");
    } catch (const core::Error& error) {
      return std::string(error.what());
    }
  };
  const char* unknown = R"({"role": "x", "content": "a"})";
  expect_message(refusal(chat_template("chatml"), unknown), "x.jsonl:3",
                 {"has no message", "roles"});
  expect_message(refusal(own_template(five_roles), unknown), "x.jsonl:3", {"unknown role x"});
  // What is wrong beside a role is said.
  const std::string strict = five_roles +
                             "{{ raise_exception('begin with a user') if "
                             "messages[0].role != 'user' }}";
  expect_message(refusal(own_template(strict), first_of("developer")), "x.jsonl:3",
                 {"begin with a user"});
}

TEST(Roles, ThatAreUnknownMayHoldAnything) {
  const data::ChatTemplate chat = own_template(
      "{% for m in messages %}<{{ m.role[0] }}>{{ m.content if m.content is string else "
      "m.content | tojson }}<e>{% endfor %}"
      "{% if add_generation_prompt %}<a>{% endif %}");
  const char* rest = R"(, {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"})";
  const auto said = [&](const std::string& content) {
    return text_of(chat, R"({"role": "context", "content": )" + content + "}" + rest);
  };
  EXPECT_EQ(said(R"({"k": [1, null]})"), R"(<c>{"k": [1, null]}<e><u>q<e><a>a<e>)");
  EXPECT_EQ(said(R"([{"type": "image", "url": "u"}])"),
            R"(<c>[{"type": "image", "url": "u"}]<e><u>q<e><a>a<e>)");
  EXPECT_EQ(said("null"), "<c>null<e><u>q<e><a>a<e>");
}

TEST(Parts, AreAListWhereverATemplateLooksAtThem) {
  const char* parts =
      R"({"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "text", "text": "y"}]},
         {"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]})";
  const auto shown = [&](const std::string& content) {
    return text_of(own_template("{% for m in messages %}<{{ m.role[0] }}>" + content +
                                "<e>{% endfor %}{% if add_generation_prompt %}<a>{% endif %}"),
                   parts);
  };
  const auto expect = [&](const std::string& content, const std::string& user,
                          const std::string& answer) {
    EXPECT_EQ(shown(content), "<u>" + user + "<e><a>" + answer + "<e>") << content;
  };
  expect(
      "{{ m.content if m.content is string else m.content | map(attribute='text') | join('/') }}",
      "x/y", "a/b");
  expect(
      "{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}|{{ p.text }}"
      "{% endfor %}{% endif %}",
      "|x|y", "|a|b");
  expect("{{ m.content | length }}{{ m.content[1:] | map(attribute='text') | list | join }}", "2y",
         "2b");
  expect("{{ 'x' in m.content }}{{ m.content == 'xy' }}{{ m.content[0].text }}", "FalseFalsex",
         "FalseFalsea");
  // A text where a list can only fail, or be printed.
  expect("{{ m.content }}{{ m.content | trim }}", "xyxy", "abab");
  expect("{{ '-' + m.content + '-' }}{{ m.content.strip() }}{{ 'z' ~ m.content }}", "-xy-xyzxy",
         "-ab-abzab");
}

TEST(Parts, AreWrittenAsTheirTextByTemplatesOfThisProgram) {
  const char* parts =
      R"({"role": "system", "content": [{"type": "text", "text": "s"}]},
         {"role": "user", "content": [{"type": "text", "text": "x"}, "y"]},
         {"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "output_text", "text": "b"}]})";
  const char* texts =
      R"({"role": "system", "content": "s"}, {"role": "user", "content": "xy"},
         {"role": "assistant", "content": "ab"})";
  for (const data::ChatTemplate& each : templates::all()) {
    const data::ChatTemplate chat = chat_template(each.name);
    const Written of_parts = written(chat, parts), of_texts = written(chat, texts);
    EXPECT_EQ(of_parts.text, of_texts.text) << each.name;
    EXPECT_EQ(of_parts.trained, of_texts.trained) << each.name;
  }
}

}  // namespace
}  // namespace finetune::tests::roles_test
