// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/detail/stream_watch.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <future>
#include <stdexcept>

namespace finetune::comm::stream_watch_test {
namespace {

/// An event of a device that does as it is told.
struct FakeEvent {
  std::atomic<bool> is_done = false;
  std::atomic<int> given_back = 0;
};

FakeEvent& as_fake(void* event) {
  return *static_cast<FakeEvent*>(event);
}

StreamWatch::Device fake_device() {
  return {.use = [] {},
          .is_done = [](void* event) { return as_fake(event).is_done.load(); },
          .time_s = [](const StreamWatch::Mark&) { return 0.5; },
          .give_back =
              [](const StreamWatch::Mark& mark) {
                ++as_fake(mark.begin).given_back;
                ++as_fake(mark.end).given_back;
              }};
}

struct Collective {
  FakeEvent begin;
  FakeEvent end;

  StreamWatch::Mark mark(Ticket ticket, Activity& activity, const char* name = "all_gather") {
    return {.ticket = ticket,
            .begin = &begin,
            .end = &end,
            .activity = &activity,
            .collective = name,
            .axis = "fsdp"};
  }
};

TEST(StreamWatch, IsInsideACollectiveOnceWhatItFollowsIsDone) {
  Activity activity;
  Collective first;
  StreamWatch watch(fake_device());
  watch.add(first.mark(1, activity));
  watch.look();
  EXPECT_FALSE(activity.look(Track::stream).is_inside) << "this rank still computes";
  first.begin.is_done = true;
  watch.look();
  const Doing doing = activity.look(Track::stream);
  EXPECT_TRUE(doing.is_inside);
  EXPECT_EQ(doing.collective, "all_gather");
  EXPECT_EQ(doing.axis, "fsdp");
  EXPECT_EQ(watch.pending(1), &first.end);
  first.end.is_done = true;
  watch.look();
  EXPECT_FALSE(activity.look(Track::stream).is_inside);
  EXPECT_EQ(watch.pending(1), std::nullopt);
  EXPECT_EQ(first.begin.given_back + first.end.given_back, 2);
}

TEST(StreamWatch, CountsCollectivesThatCameAndWentBetweenTwoLooks) {
  Activity activity;
  std::array<Collective, 3> all;
  for (std::size_t i = 0; i < 2; ++i)
    all[i].begin.is_done = all[i].end.is_done = true;
  all[2].begin.is_done = true;
  StreamWatch watch(fake_device());
  for (std::size_t i = 0; i < all.size(); ++i)
    watch.add(all[i].mark(static_cast<Ticket>(i + 1), activity, i < 2 ? "early" : "late"));
  watch.look();
  const Doing doing = activity.look(Track::stream);
  EXPECT_EQ(doing.sequence, 3);
  EXPECT_EQ(doing.collective, "late");
  EXPECT_EQ(watch.pending(2), std::nullopt);
  EXPECT_EQ(watch.pending(3), &all[2].end);
}

TEST(StreamWatch, TellsRatesByTheClockOfTheDevice) {
  Activity activity;
  std::array<Collective, 2> all;
  StreamWatch watch(fake_device());
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].begin.is_done = all[i].end.is_done = true;
    StreamWatch::Mark mark = all[i].mark(static_cast<Ticket>(i + 1), activity);
    mark.details = {.first_rank = 2, .num_ranks = 4, .bytes = (i == 0 ? 8 : 4) << 20};
    mark.is_timed = i > 0;
    watch.add(mark);
  }
  watch.look();
  const std::vector<LinkRate> rates = activity.link_rates().take();
  ASSERT_EQ(rates.size(), 1) << "the other has no times";
  EXPECT_EQ(rates[0].axis, "fsdp");
  EXPECT_EQ(rates[0].first_rank, 2);
  EXPECT_EQ(rates[0].num_ranks, 4);
  EXPECT_EQ(rates[0].bytes_per_s, 8 << 20);
}

TEST(StreamWatch, AbortsAllGroupsWhileTheComputingThreadIsBlocked) {
  Activity activity;
  Collective collective;
  collective.begin.is_done = true;
  std::promise<void> first_aborted;
  std::promise<void> second_aborted;
  StreamWatch watch(fake_device());
  // The first abort returns only when the second has begun: they must not go one after the other.
  watch.add_group(
      &first_aborted, [] { throw std::runtime_error("lost a rank"); },
      [&, second = second_aborted.get_future().share()] {
        second.wait();
        first_aborted.set_value();
      });
  watch.add_group(
      &second_aborted, [] {}, [&] { second_aborted.set_value(); });
  watch.add(collective.mark(1, activity));
  first_aborted.get_future().wait();  // as a thread in a call of the device would
  EXPECT_THROW(watch.throw_if_failed(), std::runtime_error);
  EXPECT_THROW(watch.look(), std::runtime_error);
}

TEST(StreamWatch, KeepsTheFirstError) {
  StreamWatch watch(fake_device());
  watch.give_up(std::make_exception_ptr(std::runtime_error("the cause")));
  watch.give_up(std::make_exception_ptr(std::logic_error("what followed")));
  EXPECT_THROW(watch.throw_if_failed(), std::runtime_error);
}

TEST(StreamWatch, LeavesNobodyInsideWhenItEnds) {
  Activity activity;
  Collective collective;
  collective.begin.is_done = true;
  {
    StreamWatch watch(fake_device());
    watch.add(collective.mark(1, activity));
    watch.look();
    EXPECT_TRUE(activity.look(Track::stream).is_inside);
  }
  EXPECT_FALSE(activity.look(Track::stream).is_inside);
}

}  // namespace
}  // namespace finetune::comm::stream_watch_test
