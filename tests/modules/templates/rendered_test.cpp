// SPDX-License-Identifier: Apache-2.0
// Every template against what Jinja makes of the text that the models come with.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "core/error.hpp"
#include "data/text/source.hpp"
#include "modules/templates/chats.hpp"
#include "support/folders.hpp"
#include "support/material.hpp"

namespace finetune::tests::rendered_test {
namespace {

using data::OrderedJson;

std::string rendered(const data::ChatTemplate& chat, const data::Conversation& conversation,
                     bool with_prompt) {
  try {
    if (with_prompt) return joined(render_prompt(chat, conversation, "c.json:1"));
    return joined(render(chat, conversation, data::TrainOn::all, "c.json:1").segments);
  } catch (const core::Error& error) {
    return std::string("refused: ") + error.what();
  }
}

/// The system's message stands in the last of a user's.
bool puts_system_last(const std::string& name) {
  return name == "mistral-v3" || name == "mistral-v3-tekken";
}

/// Whether our answer is meant to differ from Jinja's.
bool is_known_difference(const std::string& name, const data::Conversation& conversation) {
  const auto& messages = conversation.messages;
  // Jinja writes part of such conversations and drops the rest without a word; here they are
  // refused.
  const bool has_tools = std::ranges::any_of(messages, [](const data::ChatMessage& message) {
    return !message.calls.empty() || message.role == data::ChatRole::tool;
  });
  const bool thinks = std::ranges::any_of(
      messages, [](const data::ChatMessage& message) { return !message.reasoning.empty(); });
  const bool knows_tools = name == "qwen2.5" || name == "qwen3" || name == "llama3.1";
  if ((has_tools && !knows_tools) || (thinks && name != "qwen3")) return true;
  return puts_system_last(name) && messages.front().role == data::ChatRole::system &&
         messages.back().role == data::ChatRole::assistant;
}

TEST(Templates, WriteWhatTheModelsOwnTemplatesWrite) {
  std::ifstream file(source_folder() / "tests/golden/templates/rendered.json");
  const OrderedJson golden = OrderedJson::parse(file);
  std::map<std::string, int> compared;
  for (const OrderedJson& each : golden.at("cases")) {
    const auto name = each[0].get<std::string>();
    const data::ChatTemplate chat =
        chat_template(name, each[3].get<std::string>(), each[4].get<std::string>());
    const OrderedJson& source = golden.at("conversations").at(each[1].get<std::size_t>());
    const data::Conversation talk = conversation(source);
    std::string text = rendered(chat, talk, each[2].get<bool>());
    if (is_known_difference(name, talk)) {
      if (!puts_system_last(name)) {
        EXPECT_TRUE(text.starts_with("refused: ")) << name << source;
      }
      continue;
    }
    // The first of Llama 3's templates always asks for an answer.
    if (name == "llama3" && !each[2].get<bool>())
      text += "<|start_header_id|>assistant<|end_header_id|>\n\n";
    if (each[5].is_null()) {
      EXPECT_TRUE(text.starts_with("refused: ")) << name << source << text;
    } else {
      EXPECT_EQ(text, each[5].get<std::string>()) << name << source;
      ++compared[name];
    }
  }
  for (const auto& [name, count] : compared)
    EXPECT_GE(count, 6) << name;
  EXPECT_EQ(compared.size(), 12u);
}

TEST(Templates, WriteTheConformanceConversations) {
  const auto path = material("conformance/chat/chat_llama_cpp.json");
  REQUIRE_MATERIAL(path);
  std::ifstream file(path);
  const OrderedJson given = OrderedJson::parse(file);
  const std::map<std::string, std::string> names = {
      {"teknium/OpenHermes-2.5-Mistral-7B", "chatml"},
      {"bofenghuang/vigogne-2-70b-chat", "llama2"},
      {"Llama-3", "llama3"},
      {"mistralai/Mistral-7B-Instruct-v0.2 (mistralai 'v1' template with a system prompt)",
       "mistral-v1"},
      {"Mistral-Large-Instruct-2407 (mistralai 'v3' template; modified to have system prompt at "
       "start)",
       "mistral-v3"},
      {"Mistral-Nemo-Instruct-2407 (mistralai 'v3-tekken' template; modified to have system prompt "
       "at start)",
       "mistral-v3-tekken"},
      {"mistralai/Mistral-Large-Instruct-2411 (mistralai 'v7' template)", "mistral-v7"}};
  int compared = 0;
  for (const OrderedJson& each : given.at("cases")) {
    const auto found = names.find(each.at("name").get<std::string>());
    if (found == names.end()) continue;
    // Where Jinja says something else than the program the file comes from, Jinja is right.
    std::string expected = each.value("expected_output_jinja", "");
    if (expected.empty()) expected = each.at("expected_output").get<std::string>();
    const std::string bos = each.value("bos_token", "");
    const std::string eos = found->second == "llama2" || found->second.starts_with("mistral")
                                ? "</s>"
                                : each.value("eos_token", "");
    const data::ChatTemplate chat = chat_template(found->second, bos, eos);
    EXPECT_EQ(rendered(chat, conversation(given), true), expected) << found->first;
    ++compared;
  }
  EXPECT_EQ(compared, 7);
}

}  // namespace
}  // namespace finetune::tests::rendered_test
