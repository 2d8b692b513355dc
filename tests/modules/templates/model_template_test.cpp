// SPDX-License-Identifier: Apache-2.0
// Where a model's templates come from, and which of them is taken.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "core/error.hpp"
#include "core/json.hpp"
#include "data/text/model_template.hpp"
#include "modules/templates/chats.hpp"
#include "support/folders.hpp"
#include "support/material.hpp"
#include "support/messages.hpp"
#include "tokenizer/tokenizer.hpp"
#include "unit/data/fake.hpp"

namespace finetune::tests::model_template_test {
namespace {

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

TEST(ModelTemplates, KnowTheTokensThatTheTokenizerNames) {
  const TemporaryFolder folder;
  const tokenizer::Tokenizer tokenizer = tokenizer_with_end(folder);
  folder.write("tokenizer_config.json",
               R"({"pad_token": {"content": "<p>"}, "unk_token": "<u>", "mask_token": null,
                   "additional_special_tokens": ["<x>", {"content": "<y>"}]})");
  folder.write("chat_template.jinja",
               "{{ pad_token }}{{ unk_token }}{{ mask_token is defined }}"
               "{{ additional_special_tokens | join('+') }}{{ messages[0].content }}");
  const data::ChatTemplate chat =
      data::choose_template("model", folder.path(), tokenizer, templates::all());
  const data::Conversation conversation{{{data::ChatRole::user, "q"}}, {}};
  std::string text;
  for (const data::Segment& segment : data::render_prompt(chat, conversation, "here"))
    text += segment.text;
  EXPECT_EQ(text, "<p><u>False<x>+<y>q");
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

TEST(ModelTemplates, SayWhereTheyComeFrom) {
  const TemporaryFolder folder, adapter;
  const tokenizer::Tokenizer tokenizer = tokenizer_with_end(folder);
  const auto from = [&](const std::string& name, const std::filesystem::path& adapter_folder = {}) {
    const data::ChatTemplate chat = data::choose_template(
        name, folder.path(), tokenizer, templates::all(), "data.template", adapter_folder);
    return data::in_words(chat);
  };
  const std::string own = "the model's own template, ";
  write_named(folder, {"default", "rag"});
  EXPECT_EQ(from("model"), own + (folder / "tokenizer_config.json").string());
  EXPECT_EQ(from("model:rag"),
            "the model's own template \"rag\", " + (folder / "tokenizer_config.json").string());
  write_named(folder, {"default", "tool_use"});
  EXPECT_EQ(from("model"), own + (folder / "tokenizer_config.json").string() +
                               ", and by its \"tool_use\" where tools are on offer");
  folder.write("chat_template.jinja", "{{ messages[0].content }}<e>");
  folder.write("additional_chat_templates/rag.jinja", "rag{{ messages[0].content }}<e>");
  EXPECT_EQ(from("model"), own + (folder / "chat_template.jinja").string());
  const std::string rag = (folder / "additional_chat_templates/rag.jinja").string();
  EXPECT_EQ(from("model:rag"), "the model's own template \"rag\", " + rag);
  const std::filesystem::path of_tools = folder / "additional_chat_templates/tool_use.jinja";
  folder.write("additional_chat_templates/tool_use.jinja", "{{ messages[0].content }}<e>");
  EXPECT_EQ(from("model"), own + (folder / "chat_template.jinja").string() + ", and by " +
                               of_tools.string() + " where tools are on offer");
  adapter.write("chat_template.jinja", "adapter{{ messages[0].content }}<e>");
  EXPECT_EQ(from("model", adapter.path()), own + (adapter / "chat_template.jinja").string());
  EXPECT_EQ(data::in_words({.name = "qwen3", .text = "{{ messages }}"}),
            "the template \"qwen3\" of this program");
}

TEST(ModelTemplates, OfAModelAreNeverReplaced) {
  const TemporaryFolder folder;
  const tokenizer::Tokenizer tokenizer = tokenizer_with_end(folder);
  // As a template of this program has it, but for the names of its tokens.
  const std::string own =
      "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + "
      "message['content'] + '<e>' + '\n'}}{% endfor %}";
  folder.write("chat_template.jinja", own);
  const auto chat = data::choose_template("model", folder.path(), tokenizer, templates::all());
  EXPECT_EQ(chat.text, own);
  EXPECT_EQ(chat.stop, "<e>");
  EXPECT_EQ(chat.ends, std::vector<std::int32_t>{2});
}

TEST(ModelTemplates, OfThisProgramNeedTheirEndToken) {
  const TemporaryFolder folder;
  const tokenizer::Tokenizer tokenizer = tokenizer_with_end(folder);
  try {
    data::choose_template("chatml", folder.path(), tokenizer, templates::all());
    FAIL();
  } catch (const core::Error& error) {
    expect_message(error.what(), folder.path().string(), {"<|im_end|>", "chatml", "data.template"});
  }
}

TEST(ModelTemplates, OfTheModelAreAdvisedWhereTheyHaveWhatIsMissing) {
  const TemporaryFolder folder;
  folder.write("tokenizer.json",
               R"({"added_tokens": [{"id": 2, "content": "<|im_end|>", "special": true}],
                   "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}})");
  const auto tokenizer = tokenizer::Tokenizer::load(folder.path());
  data::Conversation thinks{{{data::ChatRole::user, "q"}, {data::ChatRole::assistant, "a"}}, {}};
  data::Conversation calls = thinks, offers = thinks;
  thinks.messages[1].reasoning = "why";
  calls.messages[1].calls = {{"f", "{}"}};
  offers.tools = {"{}"};
  const auto expect_advice = [&](const data::Conversation& talk, const std::string& advised) {
    const auto chat = data::choose_template("chatml", folder.path(), tokenizer, templates::all());
    const auto refused = [&] { render(chat, talk, data::TrainOn::answers, "here"); };
    expect_message(refusal(refused, "").substr(4), "here", {"chatml", "data.template", advised});
  };
  const std::string own = "\"model\"";
  expect_advice(calls, "qwen2.5");
  folder.write("chat_template.jinja", "{% for m in messages %}{{ m.tool_calls }}{% endfor %}");
  expect_advice(calls, own);
  expect_advice(offers, own);
  expect_advice(thinks, "qwen3");
  folder.write("chat_template.jinja", "{% for m in messages %}{{ m.thinking }}{% endfor %}");
  expect_advice(thinks, own);
  expect_advice(calls, "qwen2.5");
  // What cannot be read is no advice.
  folder.write("chat_template.jinja", "{% another %}{{ tool_calls }}");
  expect_advice(calls, "qwen2.5");
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
}  // namespace finetune::tests::model_template_test
