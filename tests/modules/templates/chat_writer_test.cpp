// SPDX-License-Identifier: Apache-2.0
// Which parts of a conversation are answers, by templates of every kind of behaviour.
#include "data/text/detail/chat_writer.hpp"

#include <gtest/gtest.h>

#include <optional>

#include "core/error.hpp"
#include "data/text/source.hpp"
#include "modules/templates/chats.hpp"
#include "modules/templates/own_chats.hpp"
#include "support/messages.hpp"

namespace finetune::tests::chat_writer_test {
namespace {

using data::ChatRole;
using data::Oddity;
using data::TrainOn;

constexpr const char* prompt = "{% if add_generation_prompt %}<a>{% endif %}";
constexpr const char* plain_turns = "<u>q<e>\n<a>‹a<e>›\n<u>r<e>\n<a>‹b<e>›\n";

TEST(AnswersOfTurns, FollowMessagesHoweverTheyAreReached) {
  const std::string body = "<{{ m.role[0] }}>{{ m.content }}<e>\n";
  const auto is_plain = [&](const std::string& jinja) {
    EXPECT_EQ(written(jinja + prompt), plain_turns) << jinja;
  };
  is_plain("{% for m in messages %}" + body + "{% endfor %}");
  is_plain("{% for m in messages | list %}" + body + "{% endfor %}");
  is_plain("{% set all = messages[:] %}{% for m in all %}" + body + "{% endfor %}");
  is_plain("{% for m in messages[::-1] | reverse %}" + body + "{% endfor %}");
  is_plain("{% for m in messages if m.role != 'system' %}" + body + "{% endfor %}");
  is_plain("{% for m in messages | selectattr('content') %}" + body + "{% endfor %}");
  is_plain(
      "{% for i in range(messages | length) %}<{{ messages[i].role[0] }}>{{ messages[i].content }}"
      "<e>\n{% endfor %}");
  is_plain("{% for x in messages %}{% set m = messages[loop.index0] %}" + body + "{% endfor %}");
  is_plain(
      "{% set ns = namespace(i=0) %}{% for x in range(messages | length) %}"
      "{% set m = messages[ns.i] %}" +
      body + "{% set ns.i = ns.i + 1 %}{% endfor %}");
  is_plain("{% macro say(m) %}" + body +
           "{% endmacro %}{% for i in range(messages | length) %}{{ say(messages[i]) }}"
           "{% endfor %}");
  is_plain(
      "{% macro at(i) %}<{{ messages[i].role[0] }}>{{ messages[i].content }}<e>\n"
      "{% if i + 1 < messages | length %}{{ at(i + 1) }}{% endif %}{% endmacro %}"
      "{% if messages %}{{ at(0) }}{% endif %}");
  is_plain("{% for m in messages %}{% set text %}" + body + "{% endset %}{{ text }}{% endfor %}");
  is_plain(
      "{% set ns = namespace(text='') %}{% for m in messages %}{% set ns.text = ns.text ~ "
      "'<' ~ m.role[0] ~ '>' ~ m.content ~ '<e>\n' %}{% endfor %}{{ ns.text }}");
  is_plain(
      "{% set ns = namespace(all=[]) %}{% for m in messages %}{% set ns.all = ns.all + "
      "['<' + m.role[0] + '>' + m.content + '<e>\n'] %}{% endfor %}{{ ns.all | join }}");
  is_plain(
      "{% set ns = namespace(all=[]) %}{% for m in messages %}{% set ns.all = ns.all + "
      "[{'role': m.role, 'content': m.content}] %}{% endfor %}{% for m in ns.all %}" +
      body + "{% endfor %}");
  is_plain("{% for m in messages %}{% filter trim %} " + body +
           "{% endfilter %}{{ '\\n' }}{% endfor %}");
}

TEST(AnswersOfTurns, NeedNoPromptBehindTheLoop) {
  EXPECT_EQ(written("{% for m in messages %}<{{ m.role[0] }}>{{ m.content }}<e>\n"
                    "{% if loop.last and add_generation_prompt %}<a>{% endif %}{% endfor %}"),
            plain_turns);
  EXPECT_EQ(written("{% for m in messages %}{{ '[I]' + m.content + '[/I]' if m.role == 'user' else "
                    "' ' + m.content + ' <e>' }}{% endfor %}"),
            "[I]q[/I]‹ a <e>›[I]r[/I]‹ b <e>›");
}

TEST(AnswersOfTurns, BeginWhereThePromptForThemAndTheyAreNoLongerTheSame) {
  // Prompts open thoughts, answers before the last have none.
  const std::string thinks =
      "{% for m in messages %}<{{ m.role[0] }}>{% if m.role == 'assistant' and loop.last "
      "%}<think>\n"
      "{{ m.reasoning_content or '' }}</think>{% endif %}{{ m.content }}<e>{% endfor %}"
      "{% if add_generation_prompt %}<a><think>\n{% endif %}";
  EXPECT_EQ(written(thinks), "<u>q<e><a>‹a<e>›<u>r<e><a><think>\n‹</think>b<e>›");
  const data::Conversation tags = talk(
      R"({"role": "user", "content": "q"}, {"role": "assistant", "content": "<b>"},
         {"role": "user", "content": "r"},
         {"role": "assistant", "content": "b", "reasoning_content": "h"})");
  EXPECT_EQ(written(own_template(thinks), tags),
            "<u>q<e><a>‹<b><e>›<u>r<e><a><think>\n‹h</think>b<e>›");
  // Not in the middle of a tag that begins like the prompt's.
  EXPECT_EQ(written("{% for m in messages %}<{{ m.role[0] }}>{% if m.role == 'assistant' %}<call>"
                    "{% endif %}{{ m.content }}<e>{% endfor %}{% if add_generation_prompt %}<a>"
                    "<think>{% endif %}"),
            "<u>q<e><a>‹<call>a<e>›<u>r<e><a>‹<call>b<e>›");
}

TEST(AnswersOfTurns, BeginBehindThePromptWhateverJoinsTurns) {
  EXPECT_EQ(
      written("{% set ns = namespace(all=[]) %}{% for m in messages %}{% set ns.all = ns.all + "
              "['<' + m.role[0] + '>' + m.content + '<e>'] %}{% endfor %}"
              "{{ ns.all | join('\n') }}{{ '\n<a>' if add_generation_prompt }}"),
      "<u>q<e>\n<a>‹a<e>›\n<u>r<e>\n<a>‹b<e>›");
}

TEST(AnswersOfTurns, EndWithEveryTokenThatEndsThem) {
  const auto ended = [](const std::string& end, const std::vector<std::string>& ids) {
    return written(
        "{% for m in messages %}<{{ m.role[0] }}>{{ m.content }}{% if m.role == "
        "'assistant' %}" +
            end + "{% endif %}{% endfor %}" + prompt,
        ids);
  };
  EXPECT_EQ(ended("<end><e>\n", {"<e>"}), "<u>q<a>‹a<end><e>›\n<u>r<a>‹b<end><e>›\n");
  EXPECT_EQ(ended("<e>\n<end>", {"<e>"}), "<u>q<a>‹a<e>›\n<end><u>r<a>‹b<e>›\n<end>");
  // None of those that the model's files name.
  EXPECT_EQ(ended("<end>\n", {"<e>"}), "<u>q<a>‹a<end>›\n<u>r<a>‹b<end>›\n");
  EXPECT_EQ(ended("{{ '<end>' if loop.last else '<e>' }}", {"<end>"}),
            "<u>q<a>‹a<e>›<u>r<a>‹b<end>›");
  // Of the next turn, and what would begin one behind the last answer.
  EXPECT_EQ(ended("", {"<u>", "<t>"}), "<u>q<a>‹a<u>›r<a>‹b<u>›");
  // Also where no file of the model says so; but no turn of the assistant's own.
  EXPECT_EQ(ended("", {}), "<u>q<a>‹a<u>›r<a>‹b<u>›");
  EXPECT_EQ(written(own_template(std::string("{% for m in messages %}<{{ m.role[0] }}>"
                                             "{{ m.content }}{% endfor %}") +
                                 prompt),
                    talk(R"({"role": "user", "content": "q"},
                            {"role": "assistant", "content": "a"},
                            {"role": "assistant", "content": "b"})")),
            "<u>q<a>‹a›<a>‹b<u>›");
}

TEST(AnswersOfTurns, HoldWhateverTheyAndOthersSay) {
  const std::string jinja = std::string(
                                "{% for m in messages %}<{{ m.role[0] }}>{{ m.content | trim "
                                "}}<e>\n{% endfor %}") +
                            prompt;
  const data::Conversation names = talk(
      R"({"role": "user", "content": "what is <e> or <a>?"},
         {"role": "assistant", "content": " the <e> ends, <u> begins\n"},
         {"role": "user", "content": "<a>"}, {"role": "assistant", "content": "<a>"})");
  const data::Rendered made = render(own_template(jinja), names, TrainOn::answers, "x");
  EXPECT_EQ(
      marked(written_chat(made.segments)),
      "<u>what is <e> or <a>?<e>\n<a>‹the <e> ends, <u> begins<e>›\n<u><a><e>\n<a>‹<a><e>›\n");
  std::string said;
  for (const data::Segment& segment : made.segments)
    if (!segment.markup) said += segment.text + "|";
  EXPECT_EQ(said, "what is <e> or <a>?|the <e> ends, <u> begins|<a>|<a>|");
}

TEST(AnswersOfTurns, MayBeEmptyOrOfNoWeight) {
  const std::string jinja =
      std::string("{% for m in messages %}<{{ m.role[0] }}>{{ m.content }}<e>{% endfor %}") +
      prompt;
  EXPECT_EQ(written(own_template(jinja), talk(R"({"role": "user", "content": "q"},
      {"role": "assistant", "content": "a", "weight": 0}, {"role": "assistant", "content": ""},
      {"role": "user", "content": "r"}, {"role": "assistant", "content": "b"})")),
            "<u>q<e><a>a<e><a>‹<e>›<u>r<e><a>‹b<e>›");
  const data::Rendered made = render(own_template(jinja), talk(R"({"role": "user", "content": "q"},
      {"role": "assistant", "content": ""})"),
                                     TrainOn::answers, "x");
  EXPECT_EQ(made.oddities, static_cast<std::uint32_t>(Oddity::empty_answer));
}

TEST(AnswersOfTurns, ThatAreEmptyEndAsThoseThatSaySomething) {
  const char* empty = R"({"role": "user", "content": "q"}, {"role": "assistant", "content": ""},
      {"role": "user", "content": "r"}, {"role": "assistant", "content": "b"})";
  // Their own turn ends with tokens that end nothing: the next turn's does.
  const std::string of_next =
      "{% for m in messages %}<{{ m.role[0] }}>{% if m.role == 'assistant' %}{{ "
      "'\n<think></think>' }}"
      "{{ '\n' + m.content if m.content }}{% else %}{{ m.content }}{% endif %}{% endfor %}";
  EXPECT_EQ(written(own_template(of_next + prompt), talk(empty)),
            "<u>q<a>\n<think></think>‹<u>›r<a>‹\n<think></think>\nb<u>›");
  // A token of their header stands right before those that end them.
  const std::string with_header =
      "{% for m in messages %}<{{ m.role[0] }}>{{ 'final<t>' if m.role == 'assistant' }}"
      "{{ m.content }}<e>{% endfor %}";
  EXPECT_EQ(written(own_template(with_header + prompt), talk(empty)),
            "<u>q<e><a>final<t>‹<e>›<u>r<e><a>‹final<t>b<e>›");
}

constexpr const char* with_calls =
    R"({"role": "user", "content": "q"},
       {"role": "assistant", "content": null, "tool_calls": [
         {"id": "i1", "function": {"name": "f", "arguments": "{\"x\": 1.50}"}},
         {"id": "i2", "function": {"name": "g", "arguments": {"y": [2]}}}]},
       {"role": "tool", "name": "f", "tool_call_id": "i1", "content": "7"},
       {"role": "assistant", "content": "a"})";

TEST(AnswersOfTurns, HoldTheirCallsWithAllThatTheDataSay) {
  const std::string jinja = std::string(
                                "{% for m in messages %}<{{ m.role[0] }}>{{ m.content or '' }}{% "
                                "for c in m.tool_calls or [] %}"
                                "<call>{{ c.id }}:{{ c.function.name }}{{ '=' + "
                                "c.function.arguments }}</call>{% endfor %}"
                                "{{ '#' + m.tool_call_id if m.tool_call_id }}<e>{% endfor %}") +
                            prompt;
  EXPECT_EQ(written(own_template(jinja, {"<e>"}), talk(with_calls)),
            "<u>q<e><a>‹<call>i1:f={\"x\": 1.50}</call><call>i2:g={\"y\": [2]}</call><e>›"
            "<t>7#i1<e><a>‹a<e>›");
  // A template that walks through arguments finds them in a text, too.
  const std::string walks =
      std::string(
          "{% for m in messages %}<{{ m.role[0] }}>{{ m.content or '' }}{% for c in m.tool_calls "
          "or [] %}"
          "{% for k, v in c.function.arguments | items %}{{ k }}={{ v | tojson }};{% endfor %}"
          "{% endfor %}<e>{% endfor %}") +
      prompt;
  EXPECT_EQ(written(own_template(walks), talk(with_calls)),
            "<u>q<e><a>‹x=1.5;y=[2];<e>›<t>7<e><a>‹a<e>›");
}

TEST(AnswersOfTurns, AreNotWhatAnotherTurnQuotesOfThem) {
  const std::string jinja =
      std::string(
          "{% set ns = namespace(last='') %}{% for m in messages %}<{{ m.role[0] }}>"
          "{% if m.role == 'tool' %}{{ ns.last }}: {% endif %}{{ m.content or '' }}"
          "{% for c in m.tool_calls or [] %}<call>{{ c.function.name }}{% set ns.last = "
          "c.function.name %}"
          "{% endfor %}<e>{% endfor %}") +
      prompt;
  EXPECT_EQ(written(own_template(jinja), talk(with_calls)),
            "<u>q<e><a>‹<call>f<call>g<e>›<t>g: 7<e><a>‹a<e>›");
}

TEST(AnswersOfTurns, ThatStandInTurnsOfOthersAreRefused) {
  const data::ChatTemplate chat = own_template(
      "{% for m in messages %}{% if m.role == 'user' %}<u>{{ m.content }}<a>"
      "{{ loop.nextitem.content }}<e>{% endif %}{% endfor %}");
  try {
    written(chat, talk(two_turns));
    FAIL();
  } catch (const core::Error& error) {
    expect_message(error.what(), "x.jsonl:3",
                   {"message 2", "<u>q<a>a<e>", "message 1", "data.template", "{% generation %}"});
  }
}

TEST(AnswersOfTurns, OfATemplateWithoutALoopAreWhatFollowsWhatTheySay) {
  EXPECT_EQ(
      written(own_template("<u>{{ messages[0].content }}<a>{{ messages[1].content }}<e>"),
              talk(R"({"role": "user", "content": "q"}, {"role": "assistant", "content": "a"})")),
      "<u>q<a>‹a<e>›");
}

TEST(AnswersThatAreMarked, AreTrainedWhereverTheMarksStand) {
  const std::string inside = "<a>{% generation %}{{ m.content }}<e>{% endgeneration %}{{ '\\n' }}";
  const std::string loop =
      "{% for m in messages %}{% if m.role == 'user' %}<u>{{ m.content }}<e>\n"
      "{% else %}";
  EXPECT_EQ(written(loop + inside + "{% endif %}{% endfor %}"), plain_turns);
  EXPECT_EQ(written("{% macro say(m) %}" + inside + "{% endmacro %}" + loop +
                    "{{ say(m) }}{% endif %}{% endfor %}"),
            plain_turns);
  EXPECT_EQ(written(loop + "{% set text %}" + inside +
                    "{% endset %}{{ text | replace('zz', '') }}"
                    "{% endif %}{% endfor %}"),
            plain_turns);
  EXPECT_EQ(written(own_template(loop + inside + "{% endif %}{% endfor %}"),
                    talk(R"({"role": "user", "content": "q"},
                            {"role": "assistant", "content": "a", "weight": 0},
                            {"role": "assistant", "content": "b"})")),
            "<u>q<e>\n<a>a<e>\n<a>‹b<e>›\n");
}

TEST(ChatWriter, SaysWhatATemplateLeavesOut) {
  const data::ChatTemplate chat = own_template(
      std::string("{% for m in messages %}<{{ m.role[0] }}>{{ m.content }}<e>{% endfor %}") +
      prompt);
  const auto oddities = [&](const char* answer) {
    return render(chat, talk(std::string(R"({"role": "user", "content": "q"}, )") + answer),
                  TrainOn::answers, "x")
        .oddities;
  };
  EXPECT_EQ(oddities(R"({"role": "assistant", "content": "a"})"), 0U);
  const auto left_out = static_cast<std::uint32_t>(Oddity::not_written);
  EXPECT_EQ(oddities(R"({"role": "assistant", "content": "a", "thinking": "h"})"), left_out);
  EXPECT_EQ(oddities(R"({"role": "assistant", "content": "a", "tool_calls": [
      {"function": {"name": "f", "arguments": {}}}]})"),
            left_out);
}

TEST(ChatWriter, GivesATemplateTheNamesThatTheDataSay) {
  const data::ChatTemplate chat = own_template(
      std::string("{{ effort }}{% for m in messages %}<{{ m.role[0] }}>{{ m.content }}<e>"
                  "{% endfor %}") +
      prompt);
  EXPECT_EQ(written(chat, talk(R"({"role": "user", "content": "q"},
                                  {"role": "assistant", "content": "a"})",
                               R"(, "kwargs": {"effort": "high"})")),
            "high<u>q<e><a>‹a<e>›");
}

TEST(ChatWriter, FindsTheTokenThatEndsAnAnswer) {
  const auto stop = [](const std::string& jinja) { return own_template(jinja).writer->stop(); };
  EXPECT_EQ(stop("{% for m in messages %}<u>{{ m.content }} <end>\n{% endfor %}"), "<end>");
  EXPECT_EQ(stop("{% for m in messages %}{{ m.role }}: {{ m.content }}.{% endfor %}"), "<e>");
  EXPECT_EQ(stop("{% for m in messages %}{{ raise_exception('no') }}{% endfor %}"), "<e>");
}

}  // namespace
}  // namespace finetune::tests::chat_writer_test
