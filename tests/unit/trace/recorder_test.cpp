// SPDX-License-Identifier: Apache-2.0
#include "trace/recorder.hpp"

#include <gtest/gtest.h>

#include <thread>

namespace finetune::trace::recorder_test {
namespace {

TEST(Recorder, KeepsNothingUnlessItIsOn) {
  { const Span span(main_row, "before"); }
  start({});
  stop();
  { const Span span(main_row, "after"); }
  start({});
  EXPECT_TRUE(stop().events.empty());
}

TEST(Recorder, GivesWhatEnclosesFirst) {
  start({});
  {
    const Span outer(main_row, "forward", "layers.3");
    const Span inner(main_row, "wait", "fsdp");
  }
  const auto events = stop().events;
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].name, "forward of layers.3");
  EXPECT_EQ(events[1].name, "wait of fsdp");
  EXPECT_LE(events[0].begin_ns, events[1].begin_ns);
  EXPECT_GE(events[0].end_ns, events[1].end_ns);
}

TEST(Recorder, LeavesOutWhatBeganBefore) {
  start({});
  {
    const Span cut(main_row, "cut");
    start({});
  }
  EXPECT_TRUE(stop().events.empty());
}

TEST(Recorder, EndsASpanOnceWhereItIsToldTo) {
  start({});
  Span span(main_row, "data");
  span.end();
  span.end();
  EXPECT_EQ(stop().events.size(), 1u);
}

TEST(Recorder, TakesSpansOfManyThreads) {
  start({});
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([i] {
        for (int n = 0; n < 100; ++n)
          const Span span("row " + std::to_string(i), "work");
      });
  }
  EXPECT_EQ(stop().events.size(), 400u);
}

TEST(Recorder, SamplesMemoryWhereItChanges) {
  int mib = 1;
  start({.memory = [&] { return core::Json{{"weights", mib}}; }});
  {
    const Span first(main_row, "first");
    mib = 5;
  }
  { const Span second(main_row, "second"); }
  { const Span elsewhere("data", "third"); }
  std::vector<int> values;
  for (const Event& event : stop().events)
    if (event.is_counter) values.push_back(event.args["weights"].get<int>());
  EXPECT_EQ(values, (std::vector<int>{1, 5}));
}

TEST(Recorder, SaysFromWhereASpanWasReached) {
  start({.stacks = true});
  { const Span span(main_row, "here"); }
  const auto events = stop().events;
  ASSERT_EQ(events.size(), 1u);
  ASSERT_TRUE(events[0].args.contains("stack"));
  EXPECT_FALSE(events[0].args["stack"].empty());
}

}  // namespace
}  // namespace finetune::trace::recorder_test
