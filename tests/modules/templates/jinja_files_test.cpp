// SPDX-License-Identifier: Apache-2.0
// The Jinja text of each template against its TOML: random conversations have equal texts, equal
// trained parts and equal refusals.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <random>

#include "core/error.hpp"
#include "data/text/source.hpp"
#include "modules/templates/jinja_chats.hpp"

namespace finetune::tests::jinja_files_test {
namespace {

using data::ChatMessage;
using data::ChatRole;
using data::Conversation;

const std::string bos = "<s>", eos = "</s>";

/// Conversations as data hold them, and worse ones.
class Talks {
 public:
  explicit Talks(std::uint32_t seed) : random_(seed) {}

  Conversation next() {
    // Most templates have no markup for functions and reasoning, and some want turns.
    has_functions_ = one_of(3) == 0;
    thinks_ = one_of(3) == 0;
    const bool takes_turns = one_of(2) == 0;
    Conversation talk;
    if (one_of(2) == 0) talk.messages.push_back({ChatRole::system, text()});
    const std::size_t num = 1 + one_of(6);
    for (std::size_t i = 0; i < num; ++i) {
      const ChatRole turn = i % 2 == 0 ? ChatRole::user : ChatRole::assistant;
      talk.messages.push_back(message(takes_turns ? turn : role()));
    }
    while (has_functions_ && one_of(2) == 0)
      talk.tools.push_back(R"({"type": "function", "function": {"name": "f", "parameters": )" +
                           arguments() + "}}");
    return talk;
  }

  std::size_t one_of(std::size_t num) { return random_() % num; }

 private:
  ChatRole role() {
    constexpr std::array roles = {ChatRole::user, ChatRole::assistant, ChatRole::tool,
                                  ChatRole::user, ChatRole::assistant, ChatRole::system};
    const ChatRole role = roles.at(one_of(roles.size()));
    if (role == ChatRole::tool && !has_functions_) return ChatRole::assistant;
    return role == ChatRole::system && one_of(2) == 0 ? ChatRole::user : role;
  }

  ChatMessage message(ChatRole role) {
    ChatMessage made{role, text()};
    if (role != ChatRole::assistant) return made;
    if (thinks_ && one_of(3) == 0) made.reasoning = text();
    while (has_functions_ && one_of(2) == 0)
      made.calls.push_back({one_of(4) == 0 ? "odd \"name\"" : "find", arguments()});
    return made;
  }

  std::string text() {
    static const std::vector<std::string> pieces = {"",
                                                    "",
                                                    " ",
                                                    "\n",
                                                    "\n\n",
                                                    "\u00a0",
                                                    "yes",
                                                    "Grüße, 世界",
                                                    "it's \\n 'so'",
                                                    "{{ messages }}",
                                                    "<|im_end|>",
                                                    "<|eot_id|>",
                                                    "</s>",
                                                    "[/INST]",
                                                    "<|im_start|>assistant\n",
                                                    "<think>\nwhy\n</think>\n\n",
                                                    "</think>",
                                                    "<think>",
                                                    "<tool_response>\n1\n</tool_response>",
                                                    "<tool_response>",
                                                    "<tool_call>\n{}\n</tool_call>"};
    std::string made;
    for (std::size_t num = one_of(4); num > 0; --num)
      made += pieces[one_of(pieces.size())];
    return made;
  }

  std::string arguments() {
    static const std::vector<std::string> texts = {
        "{}",
        R"({"z": 1, "a": [1.5, true, null, "é\"\n\u0001 <b>'&"]})",
        R"({"where": {"city": "Köln", "at": []}, "": -7})",
        R"({"n": 9007199254740993})",
        "[]",
        R"(["x", {}])"};
    return texts[one_of(texts.size())];
  }

  std::mt19937 random_;
  bool has_functions_ = false, thinks_ = false;
};

WrittenChat by_toml(const data::ChatTemplate& chat, const Conversation& talk) {
  try {
    return written_chat(render(chat, talk, data::TrainOn::answers, "c.json:1").segments);
  } catch (const core::Error& error) {
    return refused_chat(error, "c.json:1: ");
  }
}

std::string prompt_by_toml(const data::ChatTemplate& chat, const Conversation& talk) {
  try {
    return joined(render_prompt(chat, talk, "c.json:1"));
  } catch (const core::Error& error) {
    return marked(refused_chat(error, "c.json:1: "));
  }
}

/// What a conversation is trained as: nothing behind its last answer.
Conversation up_to_the_last_answer(Conversation talk) {
  const auto answers = [](const ChatMessage& each) { return each.role == ChatRole::assistant; };
  if (std::ranges::any_of(talk.messages, answers))
    while (!answers(talk.messages.back()))
      talk.messages.pop_back();
  return talk;
}

void compare(const std::string& name, std::map<std::string, int>& seen) {
  const jinja::Template jinja = jinja::Template::parse(jinja_text(name));
  for (std::uint32_t seed = 0; seed < 1000; ++seed) {
    Talks talks(seed);
    const Conversation talk = talks.next();
    const std::string begin = talks.one_of(4) == 0 ? "" : bos;
    const auto arguments = talks.one_of(2) == 0 ? Arguments::as_text : Arguments::as_values;
    const data::ChatTemplate toml = chat_template(name, begin, eos);
    const WrittenChat expected = by_toml(toml, talk);
    const WrittenChat made =
        written_by_jinja(jinja, up_to_the_last_answer(talk), false, begin, eos, arguments);
    ASSERT_EQ(marked(made), marked(expected)) << name << ", seed " << seed;
    WrittenChat prompt = written_by_jinja(jinja, talk, true, begin, eos, arguments);
    prompt.trained.clear();
    ASSERT_EQ(marked(prompt), prompt_by_toml(toml, talk)) << name << ", seed " << seed;
    ++seen[expected.refusal.empty() ? expected.trained.empty() ? "untrained" : "trained"
                                    : "refused"];
  }
}

TEST(JinjaFiles, WriteTrainAndRefuseWhatTheirTomlDoes) {
  const std::vector<data::ChatTemplate> all = templates::all();
  ASSERT_EQ(all.size(), 13u);
  for (const data::ChatTemplate& chat : all) {
    std::map<std::string, int> seen;
    compare(chat.name, seen);
    EXPECT_GE(seen["trained"], 100) << chat.name;
    EXPECT_GE(seen["untrained"], 30) << chat.name;
    if (chat.name != "qwen3") {
      EXPECT_GE(seen["refused"], 100) << chat.name;
    }
  }
}

TEST(JinjaFiles, AreThoseOfTheToml) {
  const std::vector<data::ChatTemplate> all = templates::all();
  const std::vector<templates::JinjaText> texts = templates::jinja_texts();
  ASSERT_EQ(texts.size(), all.size());
  for (std::size_t i = 0; i < all.size(); ++i)
    EXPECT_EQ(texts[i].name, all[i].name);
}

}  // namespace
}  // namespace finetune::tests::jinja_files_test
