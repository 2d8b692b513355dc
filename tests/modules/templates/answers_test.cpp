// SPDX-License-Identifier: Apache-2.0
// Where answers begin and end where a template's turns are not like those of others: separators
// between turns, ends that are left out, copies, pairs.
#include "data/text/detail/answer_places.hpp"

#include <gtest/gtest.h>

#include <string>

#include "core/error.hpp"
#include "modules/templates/own_chats.hpp"

namespace finetune::tests::answers_test {
namespace {

constexpr const char* prompt = "{% if add_generation_prompt %}<a>{% endif %}";
constexpr const char* prompt_on_line = "{% if add_generation_prompt %}{{ '\\n<a>' }}{% endif %}";
constexpr const char* call_and_result =
    R"({"role": "user", "content": "q"},
       {"role": "assistant", "content": "", "tool_calls":
        [{"type": "function", "function": {"name": "find", "arguments": {}}}]},
       {"role": "tool", "content": "r"}, {"role": "assistant", "content": "b"})";

TEST(AnswersBegin, BehindAPromptThatTheWholeBeginsWith) {
  // The separator is of the turn before, or of none, and of the prompt.
  constexpr const char* by_lines = "<u>q<e>\n<a>‹a<e>›\n<u>r<e>\n<a>‹b<e>›";
  EXPECT_EQ(written(std::string("{% for m in messages %}<{{ m.role[0] }}>{{ m.content }}<e>"
                                "{{ '\\n' if not loop.last }}{% endfor %}") +
                    prompt_on_line),
            by_lines);
  EXPECT_EQ(written(std::string("{% set ns = namespace(all=[]) %}{% for m in messages %}"
                                "{% set ns.all = ns.all + ['<' + m.role[0] + '>' + m.content + "
                                "'<e>'] %}{% endfor %}{{ ns.all | join('\\n') }}") +
                    prompt_on_line),
            by_lines);
  // A loop over other messages ends in front of the turn.
  const data::Conversation begun = talk(
      R"({"role": "system", "content": "s"}, {"role": "assistant", "content": "a"},
         {"role": "user", "content": "r"}, {"role": "assistant", "content": "b"})");
  EXPECT_EQ(written(own_template(std::string("{% set first = messages | selectattr('role', 'eq', "
                                             "'system') | list %}<s>{% for m in first %}"
                                             "{{ m.content }}{% endfor %}<e>{% for m in messages | "
                                             "rejectattr('role', 'eq', 'system') %}"
                                             "<{{ m.role[0] }}>{{ m.content }}<e>{% endfor %}") +
                                 prompt),
                    begun),
            "<s>s<e><a>‹a<e>›<u>r<e><a>‹b<e>›");
}

TEST(AnswersBegin, BehindThePromptOfAQuestionWhereNoneWasAsked) {
  EXPECT_EQ(
      written(own_template(std::string("{{ raise_exception('no message') if not messages }}<s>"
                                       "{% for m in messages %}<{{ m.role[0] }}>{{ m.content or ''"
                                       " }}{% for c in m.tool_calls or [] %}<call>"
                                       "{{ c.function.name }}</call>{% endfor %}<e>{% endfor %}") +
                               prompt,
                           {"<e>"}),
              talk(R"({"role": "assistant", "content": null, "tool_calls":
                       [{"type": "function", "function": {"name": "find", "arguments": {}}}]})")),
      "<s><a>‹<call>find</call><e>›");
}

TEST(AnswersBegin, BehindWhatThePromptWritesBetweenTurnsAndTheTurnToo) {
  // Earlier answers are written otherwise, so no prompt begins as the whole does.
  EXPECT_EQ(
      written(std::string("{% for m in messages %}{{ '\\n' if not loop.first }}<{{ m.role[0] }}>"
                          "{{ m.content }}{% if m.role == 'user' and loop.revindex <= 2 %}!"
                          "{% endif %}<e>{% endfor %}") +
              prompt_on_line),
      "<u>q<e>\n<a>‹a<e>›\n<u>r!<e>\n<a>‹b<e>›");
}

TEST(AnswersEnd, WithTheEndThatATemplateLeavesOutBehindTheLast) {
  EXPECT_EQ(written(std::string("{% for m in messages %}<{{ m.role[0] }}>{{ m.content }}"
                                "{{ '<e>' if not loop.last }}{% endfor %}") +
                    prompt),
            "<u>q<e><a>‹a<e>›<u>r<e><a>‹b<e>›");
  EXPECT_EQ(written(std::string("{% for m in messages %}<{{ m.role[0] }}>{{ m.content }}"
                                "{{ '<end>\\n' if not loop.last }}{% endfor %}") +
                        prompt,
                    {"<end>"}),
            "<u>q<end>\n<a>‹a<end>›\n<u>r<end>\n<a>‹b<end>›");
}

TEST(AnswersEnd, WithTheNextTurnWhereWhatClosesACallIsNoEnd) {
  const std::string jinja =
      std::string(
          "{% for m in messages %}<{{ m.role[0] }}>{{ m.content }}{% for c in m.tool_calls "
          "or [] %}<call>{{ c.function.name }}</call>{% endfor %}{% endfor %}") +
      prompt;
  EXPECT_EQ(written(own_template(jinja, {"<u>", "<t>"}), talk(call_and_result)),
            "<u>q<a>‹<call>find</call><t>›r<a>‹b<u>›");
  // Nobody says what ends an answer: the last special token of the turn.
  EXPECT_EQ(written(own_template(jinja), talk(call_and_result)),
            "<u>q<a>‹<call>find</call>›<t>r<a>‹b<u>›");
}

TEST(AnswersEnd, BehindWhatClosesACall) {
  // No token does: the answer holds all of the call.
  EXPECT_EQ(
      written(own_template("{% for m in messages %}{{ m.role }}: {{ m.content }}{% for c in "
                           "m.tool_calls or [] %}[{{ c.function.name }}]{% endfor %}{{ '\n' }}"
                           "{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"),
              talk(call_and_result)),
      "user: q\nassistant: ‹[find]›\ntool: r\nassistant: ‹b›\n");
}

/// The last message behind the loop over those before it, with `end` behind an answer.
std::string with_last_apart(const std::string& end) {
  const std::string said =
      "<{{ m.role[0] }}>{{ m.content or '' }}{% for c in m.tool_calls or [] %}<call>"
      "{{ c.function.name }}</call>{% endfor %}";
  return "{% for m in messages[:-1] %}" + said + "<e>{% endfor %}{% set m = messages[-1] %}" +
         said + "{{ '<e>' if m.role != 'assistant' }}" + end + prompt;
}

TEST(Answers, OfALastMessageThatIsWrittenApartAreWhole) {
  constexpr const char* asked = R"({"role": "user", "content": "q"},)";
  constexpr const char* calls =
      R"({"role": "assistant", "content": "a", "tool_calls":
          [{"type": "function", "function": {"name": "find", "arguments": {}}},
           {"type": "function", "function": {"name": "look", "arguments": {}}}]})";
  constexpr const char* empty = R"({"role": "assistant", "content": ""})";
  const std::string said = "<u>q<e><a>‹a<call>find</call><call>look</call><e>›";
  for (const char* end : {"{{ '<e>' if m.role == 'assistant' }}", ""}) {
    const auto chat = own_template(with_last_apart(end), {"<e>"});
    EXPECT_EQ(written(chat, talk(std::string(asked) + calls)), said) << end;
    EXPECT_EQ(written(chat, talk(std::string(asked) + empty)), "<u>q<e><a>‹<e>›") << end;
    EXPECT_EQ(written(chat, talk(std::string(asked) + calls + "," + asked + empty)),
              said + "<u>q<e><a>‹<e>›")
        << end;
  }
}

TEST(AnswersEnd, WithoutTheHeaderThatStandsInFrontOfAnEmptyOne) {
  const auto chat = own_template(std::string("{% for m in messages %}<{{ m.role[0] }}>{{ '\\n' }}"
                                             "{{ m.content if loop.last else m.content[:1] }}"
                                             "{{ '<e>\\n' if not loop.last }}{% endfor %}"
                                             "{% if add_generation_prompt %}{{ '<a>\\n' }}"
                                             "{% endif %}"),
                                 {"<e>"});
  EXPECT_EQ(written(chat, talk(R"({"role": "user", "content": "q"},
                                  {"role": "assistant", "content": ""})")),
            "<u>\nq<e>\n<a>\n‹<e>›");
  // What is said is left out of a turn that is not the last.
  const auto thinks = own_template(
      std::string("{% for m in messages %}<{{ m.role[0] }}>"
                  "{% if m.reasoning_content and loop.last %}[{{ m.reasoning_content }}]"
                  "{{ '\\n\\n' }}{% endif %}{{ m.content }}{{ '<e>' if not loop.last }}"
                  "{% endfor %}") +
          prompt,
      {"<e>"});
  EXPECT_EQ(written(thinks, talk(R"({"role": "user", "content": "q"},
                                    {"role": "assistant", "content": "",
                                     "reasoning_content": "r"})")),
            "<u>q<e><a>‹[r]\n\n<e>›");
}

TEST(AnswersEnd, WithTheTokenOfTheResultBehindTheLastCall) {
  const auto chat = own_template(
      std::string("{% for m in messages %}{% if m.role == 'tool' %}<t>{{ m.name + m.content }}"
                  "{% else %}<{{ m.role[0] }}>{{ m.content or '' }}{% for c in m.tool_calls or [] "
                  "%}<call>{{ c.function.name }}</call>{% endfor %}{{ '<e>' if not m.tool_calls }}"
                  "{% endif %}{% endfor %}") +
          prompt,
      {"<e>", "<t>"});
  EXPECT_EQ(written(chat, talk(R"({"role": "user", "content": "q"},
                                  {"role": "assistant", "content": null, "tool_calls":
                                   [{"type": "function", "function":
                                     {"name": "find", "arguments": {}}}]})")),
            "<u>q<e><a>‹<call>find</call><t>›");
}

TEST(AnswersEnd, NotInWhatOthersSayBehindThem) {
  const data::Conversation named =
      talk(R"({"role": "user", "content": "is <e> one?"}, {"role": "assistant", "content": "a"})");
  EXPECT_EQ(
      written(own_template(std::string("{% for m in messages %}<{{ m.role[0] }}>{{ m.content }}"
                                       "{% if m.role == 'assistant' %} [{{ messages[0].content }}]"
                                       "{% endif %}<e>{% endfor %}") +
                               prompt,
                           {"<e>"}),
              named),
      "<u>is <e> one?<e><a>‹a [›is <e> one?‹]<e>›");
}

TEST(TemplateKwargs, MayNotBeWhatTheProgramGives) {
  const std::string jinja = std::string(
                                "{% for m in messages %}<{{ m.role[0] }}>{{ m.content }}<e>"
                                "{% endfor %}{{ day }}") +
                            prompt;
  const auto with = [&](const char* kwargs) {
    data::Conversation given = talk(two_turns);
    given.template_kwargs = data::OrderedJson::parse(kwargs);
    return written(own_template(jinja), given);
  };
  EXPECT_EQ(with(R"({"day": "!"})"), "<u>q<e><a>‹a<e>›<u>r<e><a>‹b<e>›!");
  for (const char* name : {"messages", "tools", "add_generation_prompt"})
    EXPECT_THROW(with(("{\"" + std::string(name) + "\": true}").c_str()), core::Error) << name;
}

TEST(AnswersEnd, EmptyOnesWithTheirEndAlone) {
  const data::Conversation silent =
      talk(R"({"role": "user", "content": "q"}, {"role": "assistant", "content": ""})");
  EXPECT_EQ(written(own_template(std::string("{% for m in messages %}<{{ m.role[0] }}>{{ '<call>x"
                                             "<end>' if m.role == 'assistant' }}{{ m.content }}<e>"
                                             "{% endfor %}") +
                                     prompt,
                                 {"<e>"}),
                    silent),
            "<u>q<e><a><call>x<end>‹<e>›");
  EXPECT_EQ(
      written(own_template("{% for m in messages %}<{{ m.role[0] }}>{{ '<think></think>\n' if "
                           "m.role == 'assistant' }}{{ m.content }}{% endfor %}"
                           "{% if add_generation_prompt %}<a><think>{% endif %}",
                           {"<u>", "<t>"}),
              silent),
      "<u>q<a><think></think>\n‹<u>›");
}

TEST(AnswersOfOtherTurns, CopiesAreNotTrained) {
  const data::Conversation thought = talk(
      R"({"role": "user", "content": "q"},
         {"role": "assistant", "content": "a", "reasoning_content": "h"},
         {"role": "user", "content": "r"}, {"role": "assistant", "content": "b"})");
  EXPECT_EQ(written(own_template(std::string("{% for m in messages %}{% if loop.index0 == 2 %}<s>"
                                             "{% for p in messages if p.reasoning_content %}"
                                             "{{ p.reasoning_content }};{% endfor %}<e>{% endif %}"
                                             "<{{ m.role[0] }}>{{ m.content }}<e>{% endfor %}") +
                                     prompt,
                                 {"<e>"}),
                    thought),
            "<u>q<e><a>‹a<e>›<s>h;<e><u>r<e><a>‹b<e>›");
  // A name that is kept for the turn of the result.
  EXPECT_EQ(written(own_template(
                        std::string("{% set ns = namespace(n='') %}{% for m in messages %}"
                                    "<{{ m.role[0] }}>{{ ns.n if m.role == 'tool' }}{{ m.content }}"
                                    "{% for c in m.tool_calls or [] %}<call>{{ c.function.name }}"
                                    "{% set ns.n = 'of ' ~ c.function.name ~ ': ' %}{% endfor %}"
                                    "<e>{% endfor %}") +
                            prompt,
                        {"<e>"}),
                    talk(call_and_result)),
            "<u>q<e><a>‹<call>find<e>›<t>of find: r<e><a>‹b<e>›");
}

TEST(AnswersOfOtherTurns, AllMessagesInOneTextAreOfNone) {
  EXPECT_EQ(written(std::string("{{ messages | tojson }}<e>") + prompt),
            R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}, )"
            R"({"role": "user", "content": "r"}, {"role": "assistant", "content": "b"}]<e>)");
}

TEST(AnswersOfOtherTurns, ArePlacedByThePromptWhereMessagesComeInPairs) {
  constexpr const char* pairs = "<u>q<e><a>‹a<e>›<u>r<e><a>‹b<e>›";
  const std::string body =
      "{% for i in range(0, messages | length, 2) %}<u>{{ messages[i].content }}<e>"
      "{% if i + 1 < messages | length %}<a>{{ messages[i + 1].content }}<e>{% endif %}"
      "{% endfor %}";
  EXPECT_EQ(written(body + prompt), pairs);
  EXPECT_EQ(written("{% for m in messages[:-1] %}<{{ m.role[0] }}>{{ m.content }}<e>{% endfor %}"
                    "{% set last = messages[-1] %}<{{ last.role[0] }}>{{ last.content }}<e>" +
                    std::string(prompt)),
            pairs);
  // Marks say what an answer is, and the weight whether it is trained.
  const data::Conversation left_out = talk(
      R"({"role": "user", "content": "q"}, {"role": "assistant", "content": "a", "weight": 0},
         {"role": "user", "content": "r"}, {"role": "assistant", "content": "b"})");
  EXPECT_EQ(written(own_template("{% for i in range(0, messages | length, 2) %}<u>"
                                 "{{ messages[i].content }}<e><a>{% generation %}"
                                 "{{ messages[i + 1].content }}<e>{% endgeneration %}{% endfor %}"),
                    left_out),
            "<u>q<e><a>a<e><u>r<e><a>‹b<e>›");
}

TEST(AnswersOfOtherTurns, CloseTheirCallsWhereMessagesOfOneRoleAreOne) {
  const data::Conversation merged = talk(
      R"({"role": "user", "content": "q"},
         {"role": "assistant", "content": "", "tool_calls":
          [{"type": "function", "function": {"name": "find", "arguments": {}}}]},
         {"role": "assistant", "content": "b"})");
  EXPECT_EQ(
      written(own_template(
                  std::string("{% set ns = namespace(all=[]) %}{% for m in messages %}{% set text "
                              "%}{{ m.content }}{% for c in m.tool_calls or [] %}[{{ "
                              "c.function.name }}]{% endfor %}{% endset %}{% if ns.all and "
                              "ns.all[-1].role == m.role %}{% set ns.all = ns.all[:-1] + [{'role': "
                              "m.role, 'text': ns.all[-1].text + '; ' + text}] %}{% else %}{% set "
                              "ns.all = ns.all + [{'role': m.role, 'text': text}] %}{% endif %}"
                              "{% endfor %}{% for m in ns.all %}<{{ m.role[0] }}>{{ m.text }}<e>"
                              "{% endfor %}") +
                  prompt),
              merged),
      "<u>q<e><a>‹[find]; b<e>›");
}

}  // namespace
}  // namespace finetune::tests::answers_test
