// SPDX-License-Identifier: Apache-2.0
// Which template a model's Jinja text stands for.
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "data/text/model_template.hpp"
#include "modules/templates/chats.hpp"
#include "support/material.hpp"
#include "unit/data/fake.hpp"

namespace finetune::tests::recognise_test {
namespace {

constexpr const char* chatml =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] "
    "+ "
    "'<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ "
    "'<|im_start|>assistant\\n' }}{% endif %}";

std::string recognised(std::string_view jinja) {
  static const std::vector<data::ChatTemplate> all = templates::all();
  const data::ChatTemplate* found = data::recognise(jinja, all);
  return found == nullptr ? "none" : found->name;
}

TEST(RecogniseTemplate, DoesNotMindHowItIsWritten) {
  EXPECT_EQ(recognised(chatml), "chatml");
  std::string other = chatml;
  std::ranges::replace(other, '\'', '"');
  EXPECT_EQ(recognised(other), "chatml");
  EXPECT_EQ(recognised("{%- for message in messages -%}\n  {{- '<|im_start|>'+message.role+'\\n' "
                       "+  message.content + '<|im_end|>'\n + '\\n' }}\n{%- endfor %}"),
            "chatml");
}

TEST(RecogniseTemplate, IsNotFooledByAnotherSystemMessage) {
  const std::string with_default =
      std::string(
          "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nYou are "
          "Bob.<|im_end|>\\n' }}{% endif %}") +
      chatml;
  EXPECT_EQ(recognised(with_default), "none");
  EXPECT_EQ(recognised("{{ messages[0].content }}"), "none");
  EXPECT_EQ(recognised(""), "none");
}

TEST(RecogniseTemplate, KnowsThoseOfPublishedModels) {
  const auto conformance = material("conformance/chat/chat_llama_cpp.json");
  REQUIRE_MATERIAL(conformance);
  const std::map<std::string, std::string> folders = {
      {"tokenizers/qwen2.5", "qwen2.5"},
      {"tokenizers/qwen3", "qwen3"},
      {"tokenizers/mistral-7b-instruct-v0.3", "mistral-v3"}};
  for (const auto& [folder, name] : folders) {
    const auto jinja = data::model_template_text(material(folder));
    ASSERT_TRUE(jinja) << folder;
    EXPECT_EQ(recognised(*jinja), name);
  }
  EXPECT_FALSE(data::model_template_text(material("tokenizers/llama3")));
  // All the others are strangers: not one of them is taken for what it is not.
  const std::map<std::string, std::string> known = {
      {"teknium/OpenHermes-2.5-Mistral-7B", "chatml"},
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
  std::ifstream file(conformance);
  for (const auto& each : core::Json::parse(file).at("cases")) {
    const auto found = known.find(each.at("name"));
    EXPECT_EQ(recognised(each.at("template_str").get<std::string>()),
              found == known.end() ? "none" : found->second)
        << each.at("name");
  }
}

TEST(ModelTemplateText, ComesFromTheFileBesideOrTheConfiguration) {
  const TemporaryFolder folder;
  EXPECT_FALSE(data::model_template_text(folder.path()));
  folder.write("chat_template.json", "{\"chat_template\": \"c\"}");
  EXPECT_EQ(data::model_template_text(folder.path()), "c");
  folder.write("tokenizer_config.json",
               "{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"t\"}, "
               "{\"name\": \"default\", \"template\": \"d\"}]}");
  EXPECT_EQ(data::model_template_text(folder.path()), "d");
  folder.write("chat_template.jinja", "j");
  EXPECT_EQ(data::model_template_text(folder.path()), "j");
}

TEST(ModelTemplateText, OfAnotherTypeIsRefused) {
  const TemporaryFolder folder;
  folder.write("tokenizer_config.json", "{\"chat_template\": 7}");
  EXPECT_EQ(refusal([&] { data::model_template_text(folder.path()); }, folder.path()),
            "65: tokenizer_config.json: \"chat_template\" is neither a text nor a list with one "
            "named \"default\" (it says how a conversation is written for the model). Name a "
            "template in data.template.");
}

}  // namespace
}  // namespace finetune::tests::recognise_test
