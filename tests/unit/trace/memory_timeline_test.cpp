// SPDX-License-Identifier: Apache-2.0
#include "trace/memory_timeline.hpp"

#include <gtest/gtest.h>

#include "unit/trace/events.hpp"

namespace finetune::trace::memory_timeline_test {
namespace {

Event moment(std::int64_t at_ns, double weights, double activations) {
  return {.row = std::string(main_row),
          .name = "memory",
          .begin_ns = at_ns,
          .end_ns = at_ns,
          .args = {{"weights", weights}, {"activations", activations}},
          .is_counter = true};
}

TEST(MemoryTimeline, HasNoneWithoutCounters) {
  EXPECT_EQ(memory_timeline(trace::tests::rank(0, 0, {trace::tests::span("step 1", 0, 5)})), "");
}

TEST(MemoryTimeline, CountsFromTheFirstMoment) {
  const auto json = core::Json::parse(memory_timeline(
      trace::tests::rank(2, 0, {moment(1'000'000'000, 4, 0), moment(3'500'000'000, 4, 1.5)})));
  EXPECT_EQ(json["rank"], 2);
  EXPECT_EQ(json["at_s"], core::Json({0.0, 2.5}));
  EXPECT_EQ(json["mib"]["weights"], core::Json({4.0, 4.0}));
  EXPECT_EQ(json["mib"]["activations"], core::Json({0.0, 1.5}));
}

TEST(MemoryTimeline, KeepsThePeakOfMany) {
  std::vector<Event> events;
  for (int i = 0; i < 5'000; ++i)
    events.push_back(moment(i, 1, i == 3'333 ? 99 : i % 7));
  const auto json = core::Json::parse(memory_timeline(trace::tests::rank(0, 0, events)));
  EXPECT_EQ(json["at_s"].size(), 400u);
  EXPECT_EQ(json["mib"]["activations"].size(), 400u);
  EXPECT_EQ(std::ranges::count(json["mib"]["activations"], core::Json(99.0)), 1);
}

}  // namespace
}  // namespace finetune::trace::memory_timeline_test
