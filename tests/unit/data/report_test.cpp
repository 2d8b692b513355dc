// SPDX-License-Identifier: Apache-2.0
#include "data/tokens/report.hpp"

#include <gtest/gtest.h>

#include "data/tokens/detail/show.hpp"
#include "data/tokens/load.hpp"
#include "support/messages.hpp"
#include "unit/data/fake.hpp"

namespace finetune::data::report_test {
namespace {

using tests::FakeSource;
using tests::refusal;

DatasetOptions options_of(std::int64_t max_seq_length) {
  DatasetOptions options;
  options.max_seq_length = max_seq_length;
  options.vocab_size = tests::fake_vocab_size;
  return options;
}

std::uint32_t bits(Oddity finding) {
  return static_cast<std::uint32_t>(finding);
}

TEST(Report, SaysWhatWasReadCutDroppedAndFound) {
  FakeSource source;
  source.add("a", "");
  source.add("a", "b");
  source.add("a", "bcd", bits(Oddity::special_name));
  source.add("a", "b");
  DatasetOptions options = options_of(4);
  options.on_masked = OnMasked::drop;
  const Loaded loaded = load({}, source, Layout::separate, options);
  EXPECT_EQ(
      to_string(loaded.report, "training data", 4),
      "training data: 4 samples read, 3 sequences to train on, 12 tokens (longest sample 6), 6 "
      "of them trained (50.0 %)\n"
      "               end tokens trained in 2 of 3 samples kept\n"
      "               1 sample longer than max_seq_length = 4: 1 cut, 0 dropped; 2 tokens lost\n"
      "               1 sample without a trained token dropped\n"
      "               1 sample with the name of a special token in the text, which stays text\n"
      "               1 sample equal to an earlier one\n"
      "               tokens per sample, as read:\n"
      "                         2 - 3                       1 ##############\n"
      "                         4 - 7                       3 "
      "########################################\n"
      "               a token is in a sample of about 4 tokens, on average\n"
      "               sample 2 of 4; lines after + are trained, those after - are not, \\n is a "
      "new "
      "line\n"
      "    - <s>a\n"
      "    + b</s>");
}

TEST(Report, ComesBackFromItsJson) {
  FakeSource source;
  source.add("a", "b", bits(Oddity::unknown_role));
  source.add("a", "b");
  const DataReport report = load({}, source, Layout::separate, options_of(8)).report;
  EXPECT_EQ(to_json(report_from_json(to_json(report))), to_json(report));
  EXPECT_EQ(report_from_json(to_json(report)).of(SampleKind::duplicate).first, 1);
  EXPECT_EQ(report_from_json(to_json(report)).of(SampleKind::overlong).first, Count::none);
}

TEST(Report, KindsThatACacheDidNotKnowCountNone) {
  FakeSource source;
  source.add("ab", "c", bits(Oddity::left_out_part));
  const Loaded loaded = load({}, source, Layout::separate, options_of(8));
  EXPECT_EQ(loaded.report.of(SampleKind::left_out_part).number, 1);
  EXPECT_NE(to_string(loaded.report, "data", 8).find("\n      1 sample of a table"),
            std::string::npos);
  core::Json json = to_json(loaded.report);
  json.erase("left_out_parts");
  EXPECT_EQ(report_from_json(json).of(SampleKind::left_out_part).number, 0);
}

TEST(Report, ARowOfMetricsHasTheCountsAndWhatTheRunAdds) {
  FakeSource source;
  source.add("ab", "c", bits(Oddity::no_end_of_turn));
  source.add("a", "b", bits(Oddity::empty_answer));
  const Loaded loaded = load({}, source, Layout::separate, options_of(8));
  const core::Json row = core::parse_json(
      to_record(loaded.report, "training data", {{"padding", 0.25}}), "metrics.jsonl");
  const core::Json& data = row.at("data");
  EXPECT_EQ(data.at("name"), "training data");
  EXPECT_EQ(data.at("samples"), 2);
  EXPECT_EQ(data.at("tokens"), 9);
  EXPECT_EQ(data.at("trained_share").get<double>(), 4.0 / 9);
  EXPECT_EQ(data.at("missing_end_of_turn"), 1);
  EXPECT_EQ(data.at("empty_answers"), 1);
  EXPECT_EQ(data.at("duplicates"), 0);
  EXPECT_EQ(data.at("padding"), 0.25);
  EXPECT_EQ(data.at("histogram"), core::Json::array({core::Json::array({4, 2})}));
}

std::string shown(const FakeSource& source) {
  const Loaded loaded = load({}, source, Layout::separate, options_of(10'000));
  return show(source, loaded.dataset.sample(0));
}

TEST(Show, NewLinesAndControlCharactersAreVisible) {
  FakeSource source;
  source.add("a\n\nb\n", "c\x1b[2J\n+ d");
  EXPECT_EQ(shown(source),
            "    - <s>a\\n\n    - \\n\n    - b\\n\n    + c\\x1b[2J\\n\n    + + d</s>");
}

TEST(Show, LeavesOutTheMiddleOfLongRuns) {
  FakeSource source;
  source.add(std::string(1000, 'a'), "b");
  EXPECT_EQ(shown(source), "    - <s>" + std::string(199, 'a') +
                               "\n      (751 tokens left out)\n    - " + std::string(50, 'a') +
                               "\n    + b</s>");
}

TEST(Limits, NameTheShareTheLimitAndTheFirstSample) {
  FakeSource source;
  for (int i = 0; i < 8; ++i)
    source.add(std::string(1, static_cast<char>('a' + i)), "b");
  source.add("a", "b");
  source.add("c", "b");
  DatasetOptions options = options_of(8);
  options.limits.duplicates = 0.2;
  EXPECT_EQ(load({}, source, Layout::separate, options).report.of(SampleKind::duplicate).number, 2);
  options.limits.duplicates = 0.19;
  EXPECT_EQ(refusal([&] { load({}, source, Layout::separate, options); }),
            "65: fake:9: the sample equals an earlier one (2 of 10 samples are so, a share of 0.2; "
            "data.max_duplicates = 0.19 allows no more). Remove the repeated samples, or raise "
            "data.max_duplicates.");
}

TEST(Limits, OfMessagesThatAreLeftOutNameTheirRole) {
  FakeSource source;
  source.add("a", "", bits(Oddity::unknown_role));
  source.add("b", "c");
  source.role_problem_of_all = "message 1 has the role \"x\", which the chat template refuses";
  DatasetOptions options = options_of(8);
  tests::expect_facts(refusal([&] { load({}, source, Layout::separate, options); }), "65: fake:1",
                      {"no token", source.role_problem_of_all, "data.roles", "data.on_masked"});
  options.on_masked = OnMasked::drop;
  options.limits.unknown_roles = 0.1;
  tests::expect_facts(refusal([&] { load({}, source, Layout::separate, options); }), "65: fake:1",
                      {source.role_problem_of_all, "data.max_unknown_roles"});
}

TEST(Limits, EachLooksAtItsOwnCount) {
  FakeSource source;
  source.add("a", "bcdefg");
  source.add("b", "");
  source.add("c", "d", bits(Oddity::empty_answer));
  source.add("d", "e", bits(Oddity::unknown_role));
  source.add("e", "f", bits(Oddity::no_end_of_turn));
  source.add("e", "f");
  source.add("f", "g", bits(Oddity::not_written));
  const std::vector<std::pair<double Limits::*, std::string>> all = {
      {&Limits::truncated, "fake:1: the sample is cut"},
      {&Limits::masked, "fake:2: no token of the sample is trained"},
      {&Limits::empty_answers, "fake:3: an answer of the sample is empty"},
      {&Limits::unknown_roles, "fake:4: a message of the sample has a role"},
      {&Limits::missing_end_of_turn, "fake:5: no end token follows an answer"},
      {&Limits::duplicates, "fake:6: the sample equals an earlier one"},
      {&Limits::not_written, "fake:7: the chat template leaves text, reasoning or calls"}};
  for (const auto& [limit, message] : all) {
    DatasetOptions options = options_of(5);
    options.on_masked = OnMasked::drop;
    options.limits.*limit = 0.1;
    const std::string text = refusal([&] { load({}, source, Layout::separate, options); });
    EXPECT_TRUE(text.starts_with("65: " + message)) << text;
  }
}

}  // namespace
}  // namespace finetune::data::report_test
