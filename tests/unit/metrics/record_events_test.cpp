// SPDX-License-Identifier: Apache-2.0
#include "metrics/tensorboard/record_events.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <map>

namespace finetune::metrics::record_events_test {
namespace {

std::map<std::string, double> numbers(const Event& event) {
  std::map<std::string, double> by_tag;
  for (const EventNumber& number : event.numbers)
    EXPECT_TRUE(by_tag.emplace(number.tag, number.value).second) << number.tag << " is there twice";
  return by_tag;
}

TEST(RecordEvents, HaveTheRatesOfLinksByAxis) {
  LinkReport links;
  links.axes["fsdp"] = {{1e9, 2e9, 3e9}, "n1"};
  auto found = numbers(event_of(StepRecord{.step = 1, .links = links}));
  EXPECT_EQ(found["links/fsdp_gb_per_s"], 2);
  EXPECT_EQ(found["links_least/fsdp_gb_per_s"], 1);
}

TEST(RecordEvents, HaveEveryNumberOfAStep) {
  TimeReport times;
  times.parts[1] = {0.1, 0.2, 0.4};
  times.sent_bytes = {{"fsdp", std::int64_t{3} << 30}, {"tp", 0}};
  times.exposed_s = {{"tp", 0.125}};
  times.peak = {std::int64_t{1} << 29, std::int64_t{1} << 31};
  const Event event = event_of(StepRecord{.step = 7,
                                          .loss = 2.5,
                                          .grad_norm = 0.75,
                                          .lr = 1e-5,
                                          .tokens = 100,
                                          .tokens_per_s = 50,
                                          .step_s = 2,
                                          .padding = 0.25,
                                          .epoch = 1.5,
                                          .balance_loss = 0.01,
                                          .total_samples = 12,
                                          .total_tokens = 700,
                                          .tokens_per_s_per_rank = 25,
                                          .tflops_per_rank = 3,
                                          .mfu = 0.4,
                                          .times = times});
  EXPECT_EQ(event.step, 7);
  auto found = numbers(event);
  const std::map<std::string, double> expected = {{"train/loss", 2.5},
                                                  {"train/grad_norm", 0.75},
                                                  {"train/lr", 1e-5},
                                                  {"train/padding", 0.25},
                                                  {"train/epoch", 1.5},
                                                  {"train/balance_loss", 0.01},
                                                  {"train/total_samples", 12},
                                                  {"train/total_tokens", 700},
                                                  {"speed/tokens_per_s", 50},
                                                  {"speed/tokens_per_s_per_rank", 25},
                                                  {"speed/step_s", 2},
                                                  {"speed/tflops_per_rank", 3},
                                                  {"speed/mfu", 0.4},
                                                  {"time/exposed_s", 0.2},
                                                  {"time_most/exposed_s", 0.4},
                                                  {"sent/fsdp_gib", 3},
                                                  {"time_exposed/tp_s", 0.125},
                                                  {"memory/peak_tensors_gib", 0.5},
                                                  {"memory/peak_process_gib", 2}};
  for (const auto& [tag, value] : expected) {
    ASSERT_TRUE(found.contains(tag)) << tag;
    EXPECT_EQ(found[tag], value) << tag;
    found.erase(tag);
  }
  // What is left are the other parts of a step.
  EXPECT_EQ(found.size(), 2 * (StepTimes::names.size() - 1));
}

TEST(RecordEvents, OfAStepLeaveOutWhatIsNotKnown) {
  EXPECT_EQ(numbers(event_of(StepRecord{.step = 1})).size(), 6u);
}

TEST(RecordEvents, HaveABarForEachLayer) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  // Of an adapter on two blocks: one between them has nothing, and what is no number is no bar.
  const Event event = event_of(StepRecord{
      .step = 3, .norms = {{2, "block 1", 4, 0.5}, {4, "block 3", 6, nan}, {5, "head", 8, 1.5}}});
  ASSERT_EQ(event.bars.size(), 2u);
  EXPECT_EQ(event.bars[0].tag, "norms_by_layer/weight");
  EXPECT_EQ(event.bars[0].begin, 1);
  EXPECT_EQ(event.bars[0].heights, (std::vector<double>{4, 0, 6, 8}));
  EXPECT_EQ(event.bars[1].tag, "norms_by_layer/gradient");
  EXPECT_EQ(event.bars[1].heights, (std::vector<double>{0.5, 0, 0, 1.5}));
  EXPECT_EQ(event_of(StepRecord{.step = 3, .norms = {{0, "embedding", 1, 1}}}).bars[0].begin, -1);
  EXPECT_TRUE(event_of(StepRecord{.step = 3}).bars.empty());
}

TEST(RecordEvents, TellNodeLocalCheckpointsFromOthers) {
  CheckpointRecord record{.step = 4, .level = "shared", .write_s = 2};
  EXPECT_EQ(numbers(event_of(record)).at("checkpoint/write_s"), 2);
  record.level = "local";
  EXPECT_EQ(numbers(event_of(record)).at("checkpoint_local/write_s"), 2);
}

TEST(RecordEvents, ShowAnswersAsTheyAre) {
  const Event event = event_of(AnswersRecord{.step = 2, .answers = {{"*Who?*", "\xff", "Bram."}}});
  ASSERT_EQ(event.texts.size(), 1u);
  EXPECT_EQ(event.texts[0].tag, "answers");
  EXPECT_TRUE(
      event.texts[0].text.starts_with("    *Who?*\n      answer:   \\xff\n      expected: Bram.\n"))
      << event.texts[0].text;
}

}  // namespace
}  // namespace finetune::metrics::record_events_test
