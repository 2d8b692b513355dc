// SPDX-License-Identifier: Apache-2.0
// What the data report shows of conversations: one by turns, and which tokens end answers.
#include "data/tokens/detail/show.hpp"

#include <gtest/gtest.h>

#include <sstream>

#include "data/tokens/load.hpp"
#include "support/messages.hpp"
#include "unit/data/dialogues.hpp"

namespace finetune::data::show_test {
namespace {

using tests::asked;
using tests::Dialogues;
using tests::Said;

DataReport report_of(const Dialogues& source, std::int64_t max_seq_length = 10'000) {
  return load({}, source, Layout::separate, tests::dialogue_options(max_seq_length)).report;
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t number = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++number;
  return number;
}

/// What begins a line about what is left out.
constexpr const char* gap = "\n      (";

TEST(ShowTurns, AConversationWithItsTemplatePlaceAndEnds) {
  const Dialogues source({asked("One?", "1"),
                          {{"user", "?"}, {"assistant", "open", true, false}},
                          std::vector<Said>{{"system", "Be brief.\nBe\x1b[31m kind."}} +
                              asked("Two?\n", "2\nor \"2.0\"") + asked("And?", "3"),
                          asked("Four?", "4") + asked("Five?", "5")});
  const DataReport report = report_of(source);
  EXPECT_EQ(report.example, 2);
  tests::expect_words(to_string(report, "training data", 10'000));
}

TEST(ShowTurns, LongTurnsKeepBothEnds) {
  const Dialogues source(
      {asked("[" + std::string(2000, 'q') + "]", "<" + std::string(900, 'a') + ">") +
       asked("x", "y")});
  const std::string text = report_of(source).example_text;
  EXPECT_EQ(text, "    1. user\n    - [" + std::string(199, 'q') +
                      "\n      (1,753 tokens left out)\n    - " + std::string(48, 'q') +
                      "]</s>\n    2. assistant\n    + <" + std::string(199, 'a') +
                      "\n      (653 tokens left out)\n    + " + std::string(48, 'a') +
                      "></s>\n    3. user\n    - x</s>\n    4. assistant\n    + y</s>");
}

TEST(ShowTurns, AllOfManyTurnsAreThereAndTheirEndsToo) {
  std::vector<Said> said;
  for (int i = 0; i < 60; ++i)
    said = said + asked("[" + std::string(400, 'q') + "]", "<" + std::string(400, 'a') + ">");
  const std::string text = report_of(Dialogues({said}), 100'000).example_text;
  EXPECT_LE(text.size(), 16'384);
  for (int i = 1; i <= 120; ++i)
    EXPECT_EQ(count(text, "    " + std::to_string(i) + (i % 2 == 1 ? ". user\n" : ". assistant\n")),
              1);
  EXPECT_EQ(count(text, "q]</s>"), 60);
  EXPECT_EQ(count(text, "+ <a"), 60);
  EXPECT_EQ(count(text, gap), 120);
}

TEST(ShowTurns, OfThousandsThoseInTheMiddleAreLeftOut) {
  std::vector<Said> said;
  for (int i = 0; i < 1500; ++i)
    said = said + asked("first", "second");
  const std::string text = report_of(Dialogues({said}), 100'000).example_text;
  EXPECT_LE(text.size(), 16'500);
  EXPECT_TRUE(
      text.starts_with("    1. user\n    - first</s>\n    2. assistant\n    + second</s>\n"));
  EXPECT_TRUE(text.ends_with("\n    3000. assistant\n    + second</s>"));
  EXPECT_EQ(count(text, gap), 1);
  const auto shown = count(text, "\n") + 1;
  EXPECT_EQ(count(text, "      (" + std::to_string((6000 - (shown - 1)) / 1000) + ","), 1) << text;
}

TEST(ShowTurns, OfATurnInManyPiecesTheFirstAndTheLastStay) {
  std::vector<PackedToken> sample;
  for (int i = 0; i < 40; ++i)
    sample.emplace_back('a' + i % 26, i % 2 == 1);
  const Turn turn{"assistant", 0};
  EXPECT_EQ(show_turns(Dialogues({}), sample, std::span(&turn, 1)),
            "    1. assistant\n    - a\n    + b\n    - c\n    + d\n    - e\n    + f\n"
            "      (28 tokens left out)\n    - i\n    + j\n    - k\n    + l\n    - m\n    + n");
}

TEST(Example, IsTheFirstThatIsWholeAndHasSeveralTurns) {
  const std::vector<Said> dialogue = asked("a", "b") + asked("c", "d");
  EXPECT_EQ(report_of(Dialogues({asked("a", "b"), dialogue, dialogue})).example, 1);
  EXPECT_EQ(report_of(Dialogues({asked("a", "b"), asked("c", "d")})).example, 0);
  // What is cut is no whole conversation, and is shown where there is no other.
  const std::vector<Said> cut = asked("a", std::string(20, 'b')) + asked("c", "d");
  EXPECT_EQ(report_of(Dialogues({cut, asked("a", "b"), dialogue}), 12).example, 2);
  const DataReport only = report_of(Dialogues({cut}), 12);
  EXPECT_EQ(only.example, 0);
  EXPECT_EQ(only.example_text, "    1. user\n    - a</s>\n    2. assistant\n    + " +
                                   std::string(10, 'b') +
                                   "\n      (cut here: 15 more than data.max_seq_length)");
  // Nothing of it is learned.
  std::vector<Said> untrained = dialogue;
  for (Said& said : untrained)
    said.is_trained = false;
  DatasetOptions options = tests::dialogue_options();
  options.on_masked = OnMasked::drop;
  EXPECT_EQ(load({}, Dialogues({untrained, asked("a", "b"), dialogue}), Layout::separate, options)
                .report.example,
            2);
}

TEST(Example, OfDataThatNoTemplateWritesHasNoTurns) {
  tests::FakeSource source;
  source.add("a", "b");
  const DataReport report = load({}, source, Layout::separate, tests::dialogue_options()).report;
  EXPECT_FALSE(report.example_has_turns);
  EXPECT_TRUE(example_of(report, "  ").ends_with("\n    - <s>a\n    + b</s>"));
}

using Ends = std::vector<EndCount>;

TEST(EndCounts, AreOfTheAnswersThatAreKept) {
  const Dialogues source({asked("a", "b") + asked("c", "d"),
                          {{"user", "e"}, {"assistant", "f", true, false}},
                          asked("g", std::string(30, 'h')) + asked("i", "j")});
  const DataReport report = report_of(source, 20);
  EXPECT_EQ(report.num_answers, 4) << "the second of the last sample is cut off as a whole";
  EXPECT_EQ(report.ends, (Ends{{"</s>", 2}}));
  EXPECT_EQ(report.num_open, 2);
  EXPECT_EQ(report.num_unstopped, 1) << "what is cut off may have ended";
}

/// What the report says of ends: its third line.
std::string ends_line(const Dialogues& source) {
  std::istringstream text(to_string(report_of(source), "data", 10));
  std::string line;
  for (int k = 0; k < 3; ++k)
    std::getline(text, line);
  return line;
}

TEST(EndCounts, NameAnEndOfTheModelThatIsNeverTrainedWhereAnswersEndOtherwise) {
  Dialogues source({asked("a", "b")});
  source.stops = {tests::fake_bos};
  EXPECT_EQ(report_of(source).ends, (Ends{{"</s>", 1}, {"<s>", 0}}));
  tests::expect_message(ends_line(source), "", {"</s> 1 of 1", "none ends with <s>"});
  // It stops at one of them after every answer.
  source.stops = {tests::fake_bos, tests::fake_eos};
  EXPECT_EQ(ends_line(source).find("<s>"), std::string::npos);
  tests::expect_message(ends_line(source), "", {"</s> 1 of 1"});
  // Between thoughts and answers another token may stand.
  source.samples = {{{"user", "a"}, {"assistant", "b", true, false}, {"assistant", "c", true}}};
  EXPECT_EQ(ends_line(source).find("<s>"), std::string::npos);
  tests::expect_message(ends_line(source), "", {"</s> 1 of 2", "1 of 2"});
  source.samples = {{{"user", "a"}, {"assistant", "b", true, false}}};
  tests::expect_message(ends_line(source), "", {"1 of 1", "none ends with <s>", "or </s>"});
}

TEST(EndCounts, ComeBackFromTheirJson) {
  const DataReport report = report_of(Dialogues({asked("a", "b") + asked("c", "d")}));
  const DataReport back = report_from_json(to_json(report));
  EXPECT_EQ(back.ends, report.ends);
  EXPECT_EQ(to_json(back), to_json(report));
  const core::Json row = core::parse_json(to_record(report, "data", core::Json::object()), "row");
  EXPECT_EQ(row.at("data").at("answers"), 2);
  EXPECT_EQ(row.at("data").at("end_tokens"), core::Json::array({core::Json::array({"</s>", 2})}));
  // Of a cache that did not count them.
  core::Json json = to_json(report);
  for (const char* field : {"answers", "end_tokens", "open_answers", "unstopped",
                            "example_has_turns", "example_file", "example_place"})
    json.erase(field);
  EXPECT_EQ(report_from_json(json).num_answers, 0);
  EXPECT_EQ(report_from_json(json).ends, Ends());
}

}  // namespace
}  // namespace finetune::data::show_test
