// SPDX-License-Identifier: Apache-2.0
// Which template a model's Jinja text stands for.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "core/json.hpp"
#include "data/text/model_template.hpp"
#include "modules/templates/chats.hpp"
#include "support/folders.hpp"
#include "support/material.hpp"
#include "tokenizer/tokenizer.hpp"
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
    const auto jinja = data::model_templates(material(folder)).standard;
    ASSERT_TRUE(jinja) << folder;
    EXPECT_EQ(recognised(*jinja), name);
  }
  EXPECT_FALSE(data::model_templates(material("tokenizers/llama3")).standard);
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

using Named = std::map<std::string, std::string>;

TEST(ModelTemplates, ComeFromTheFileBesideOrTheConfiguration) {
  const TemporaryFolder folder;
  EXPECT_FALSE(data::model_templates(folder.path()).standard);
  folder.write("chat_template.json", "{\"chat_template\": \"c\"}");
  EXPECT_EQ(data::model_templates(folder.path()).standard, "c");
  folder.write("tokenizer_config.json",
               "{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"t\"}, "
               "{\"name\": \"default\", \"template\": \"d\"}]}");
  EXPECT_EQ(data::model_templates(folder.path()).standard, "d");
  EXPECT_EQ(data::model_templates(folder.path()).named, (Named{{"tool_use", "t"}}));
  folder.write("chat_template.jinja", "j");
  EXPECT_EQ(data::model_templates(folder.path()).standard, "j");
  EXPECT_EQ(data::model_templates(folder.path()).named, Named());
  std::filesystem::create_directory(folder.path() / "additional_chat_templates");
  folder.write("additional_chat_templates/rag.jinja", "r");
  folder.write("additional_chat_templates/notes.txt", "n");
  EXPECT_EQ(data::model_templates(folder.path()).named, (Named{{"rag", "r"}}));
}

/// A tokenizer with <e>, which ends answers.
tokenizer::Tokenizer tokenizer_with_end(const TemporaryFolder& folder) {
  folder.write("tokenizer.json",
               R"({"added_tokens": [{"id": 2, "content": "<e>", "special": true}],
                   "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}})");
  return tokenizer::Tokenizer::load(folder.path());
}

std::string named_template(const std::string& name) {
  return "{% for m in messages %}" + name + "{{ m.content }}<e>{% endfor %}";
}

void write_named(const TemporaryFolder& folder, const std::vector<std::string>& names) {
  core::Json list = core::Json::array();
  for (const std::string& name : names)
    list.push_back({{"name", name}, {"template", named_template(name)}});
  folder.write("tokenizer_config.json", core::Json({{"chat_template", list}}).dump());
}

TEST(ModelTemplates, ThatAreSeveralAreChosenByNameOrByWhetherThereAreTools) {
  const TemporaryFolder folder;
  const tokenizer::Tokenizer tokenizer = tokenizer_with_end(folder);
  write_named(folder, {"default", "tool_use", "rag"});
  const auto written = [&](const std::string& name, bool has_tools) {
    const data::ChatTemplate chat =
        data::choose_template(name, folder.path(), tokenizer, templates::all());
    data::Conversation conversation{{{data::ChatRole::user, "q"}}, {}};
    if (has_tools) conversation.tools.emplace_back(R"({"name": "f"})");
    std::string text;
    for (const data::Segment& segment : data::render_prompt(chat, conversation, "here"))
      text += segment.text;
    return text;
  };
  EXPECT_EQ(written("model", false), "defaultq<e>");
  EXPECT_EQ(written("model", true), "tool_useq<e>");
  EXPECT_EQ(written("model:default", true), "defaultq<e>");
  EXPECT_EQ(written("model:rag", false), "ragq<e>");
  const std::string folder_text = "65: " + folder.path().string();
  const std::string remedy = ". Name one of these in data.model_template.";
  EXPECT_EQ(refusal([&] { written("model:chat", false); }, ""),
            folder_text +
                ": the model has no chat template \"chat\" (it has \"default\", \"rag\", "
                "\"tool_use\")" +
                remedy);
  write_named(folder, {"tool_use", "rag"});
  EXPECT_EQ(refusal([&] { written("model", false); }, ""),
            folder_text +
                ": none of the model's chat templates is called \"default\" (it has \"rag\", "
                "\"tool_use\")" +
                remedy);
}

TEST(ModelTemplates, OfAnotherTypeAreRefused) {
  const TemporaryFolder folder;
  folder.write("tokenizer_config.json", "{\"chat_template\": 7}");
  EXPECT_EQ(refusal([&] { data::model_templates(folder.path()); }, folder.path()),
            "65: tokenizer_config.json: \"chat_template\" is neither a text nor a list of named "
            "ones (it says how a conversation is written for the model). Name a "
            "template in data.template.");
}

}  // namespace
}  // namespace finetune::tests::recognise_test
