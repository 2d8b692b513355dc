// SPDX-License-Identifier: Apache-2.0
#include "formats/preference/preference.hpp"

#include <gtest/gtest.h>

#include "support/messages.hpp"
#include "unit/data/fake.hpp"

namespace finetune::formats::preference::preference_test {
namespace {

using tests::expect_message;
using tests::TemporaryFolder;

data::Sample sample_of(const TemporaryFolder& folder, std::string_view content,
                       const data::Columns& columns = {}) {
  return format().open(folder.write("d.jsonl", content), columns)->sample(0);
}

std::string refusal_of(std::string_view content) {
  const TemporaryFolder folder;
  return tests::refusal([&] { sample_of(folder, content); }, folder.path());
}

TEST(Preference, IsTwoTexts) {
  const TemporaryFolder folder;
  const auto sample = sample_of(folder, R"({"chosen": "good", "rejected": "bad"})");
  ASSERT_EQ(sample.segments.size(), 1u);
  EXPECT_EQ(sample.segments[0].text, "good");
  EXPECT_FALSE(sample.segments[0].trained);
  ASSERT_TRUE(sample.rejected);
  EXPECT_EQ(sample.rejected->segments.at(0).text, "bad");
}

TEST(Preference, APromptGoesInFrontOfBoth) {
  const TemporaryFolder folder;
  data::Columns columns;
  columns.prompt = "question";
  const auto sample = sample_of(
      folder, R"({"question": "1+1=", "chosen": "2", "rejected": "3", "prompt": 7})", columns);
  EXPECT_EQ(sample.segments.at(0).text, "1+1=2");
  EXPECT_EQ(sample.rejected->segments.at(0).text, "1+1=3");
}

TEST(Preference, ColumnsAreMappedAndATemplateWritesThePrompt) {
  const TemporaryFolder folder;
  data::Columns columns;
  columns.mapped = {{"chosen", "good"}, {"rejected", "bad"}};
  columns.prompt_template = "Q: {{ q }} A: ";
  const auto texts = sample_of(folder, R"({"q": "1+1", "good": "2", "bad": "3"})", columns);
  EXPECT_EQ(texts.segments.at(0).text, "Q: 1+1 A: 2");
  EXPECT_EQ(texts.rejected->segments.at(0).text, "Q: 1+1 A: 3");
  const std::string answer = R"([{"role": "assistant", "content": "2"}])";
  const auto chats = sample_of(
      folder, R"({"q": "1+1", "good": )" + answer + R"(, "bad": )" + answer + "}", columns);
  EXPECT_EQ(chats.conversation.messages.at(0).text, "Q: 1+1 A: ");
  EXPECT_EQ(chats.rejected->conversation.messages.size(), 2u);
  const std::string two =
      R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": "2"}])";
  EXPECT_NE(
      tests::refusal(
          [&] { sample_of(folder, R"({"q": "1", "good": )" + two + R"(, "bad": "3"})", columns); },
          folder.path())
          .find("field \"good\" has 2 messages (data.prompt_template writes what stands in "
                "front of one answer)"),
      std::string::npos);
}

TEST(Preference, AnswersMayBeConversations) {
  const TemporaryFolder folder;
  const auto sample = sample_of(
      folder,
      R"({"chosen": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}], "rejected": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "b"}]})");
  EXPECT_TRUE(sample.segments.empty());
  ASSERT_EQ(sample.conversation.messages.size(), 2u);
  EXPECT_EQ(sample.conversation.messages[1].text, "a");
  EXPECT_EQ(sample.rejected->conversation.messages.at(1).text, "b");
  const auto with_prompt = sample_of(
      folder,
      R"({"prompt": [{"role": "user", "content": "q"}], "chosen": [{"role": "assistant", "content": "a"}], "rejected": [{"role": "assistant", "content": "b"}]})");
  EXPECT_EQ(with_prompt.conversation.messages.size(), 2u);
  EXPECT_EQ(with_prompt.rejected->conversation.messages.at(0).text, "q");
}

TEST(Preference, BothAnswersHaveTheTools) {
  const TemporaryFolder folder;
  const auto answer = [](const std::string& text) {
    return R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": ")" + text +
           R"("}])";
  };
  const auto sample =
      sample_of(folder, R"({"chosen": )" + answer("a") + R"(, "rejected": )" + answer("b") +
                            R"(, "tools": [{"name": "f"}], "chat_template_kwargs": {"x": 1}})");
  const std::vector<std::string> tools = {R"({"name": "f"})"};
  for (const data::Conversation& each : {sample.conversation, sample.rejected->conversation}) {
    EXPECT_EQ(each.tools, tools);
    EXPECT_EQ(each.template_kwargs, (data::OrderedJson{{"x", 1}}));
  }
  const std::string texts = R"({"chosen": "a", "rejected": "b", "tools": "hammer"})";
  EXPECT_TRUE(sample_of(folder, texts).conversation.tools.empty());
  expect_message(refusal_of(R"({"chosen": )" + answer("a") + R"(, "rejected": )" + answer("b") +
                            R"(, "tools": "hammer"})")
                     .substr(4),
                 "d.jsonl:1", {"\"tools\""});
}

TEST(Preference, RefusesWhatIsNoPair) {
  EXPECT_NE(
      refusal_of(R"({"chosen": "good", "rejektd": "bad"})").find("field \"rejected\" is missing"),
      std::string::npos);
  EXPECT_NE(refusal_of(R"({"chosen": 1, "rejected": "bad"})").find("a list of messages"),
            std::string::npos);
  EXPECT_NE(refusal_of(R"({"chosen": [], "rejected": "bad"})").find("a list of messages"),
            std::string::npos);
  EXPECT_NE(refusal_of(R"({"chosen": [{"role": "user", "content": 7}], "rejected": "bad"})")
                .find("message 1"),
            std::string::npos);
}

}  // namespace
}  // namespace finetune::formats::preference::preference_test
