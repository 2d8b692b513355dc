// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/worker.hpp"

#include <gtest/gtest.h>

#include <future>
#include <stdexcept>
#include <vector>

namespace finetune::comm::worker_test {
namespace {

class EveryWorker : public testing::TestWithParam<Worker::Where> {
 protected:
  Worker worker_{GetParam()};
};

TEST_P(EveryWorker, DoesWorkInTheOrderOfPosting) {
  std::vector<int> done;
  std::int64_t last = 0;
  for (int i = 0; i < 1000; ++i)
    last = worker_.post([&done, i] { done.push_back(i); });
  worker_.wait(last);
  ASSERT_EQ(done.size(), 1000u);
  for (int i = 0; i < 1000; ++i)
    EXPECT_EQ(done[static_cast<std::size_t>(i)], i);
}

TEST_P(EveryWorker, WhatWorkWroteIsThereAfterTheWait) {
  std::vector<double> values(100, 0.0);
  for (int round = 1; round <= 50; ++round) {
    const std::int64_t ticket = worker_.post([&values, round] {
      for (double& value : values)
        value += round;
    });
    worker_.wait(ticket);
    EXPECT_EQ(values[0], round * (round + 1) / 2.0);
    for (double& value : values)
      EXPECT_EQ(value, values[0]);
  }
}

TEST_P(EveryWorker, ATicketOfLongAgoIsDone) {
  const std::int64_t first = worker_.post([] {});
  worker_.wait(worker_.post([] {}));
  EXPECT_TRUE(worker_.is_done(first));
  worker_.wait(first);
}

TEST_P(EveryWorker, WhatWorkThrowsComesOutOfWaitAndOfLaterPosts) {
  const auto all = [&] {
    worker_.wait(worker_.post([] { throw std::runtime_error("lost a rank"); }));
  };
  EXPECT_THROW(all(), std::runtime_error);
  EXPECT_THROW(worker_.post([] {}), std::runtime_error);
  EXPECT_THROW(worker_.wait_all(), std::runtime_error);
}

INSTANTIATE_TEST_SUITE_P(Where, EveryWorker,
                         testing::Values(Worker::Where::behind, Worker::Where::inline_),
                         [](const auto& info) {
                           return info.param == Worker::Where::behind ? "behind" : "inline";
                         });

TEST(Worker, WorksBehindItsOwner) {
  Worker worker(Worker::Where::behind);
  std::promise<void> go;
  bool is_done = false;
  const std::int64_t ticket = worker.post([&] {
    go.get_future().wait();
    is_done = true;
  });
  // It could not have ended: what it waits for comes only now.
  EXPECT_FALSE(worker.is_done(ticket));
  go.set_value();
  worker.wait(ticket);
  EXPECT_TRUE(is_done);
}

TEST(Worker, DoesWhatIsLeftBeforeItEnds) {
  int done = 0;
  {
    Worker worker(Worker::Where::behind);
    for (int i = 0; i < 100; ++i)
      worker.post([&done] { ++done; });
  }
  EXPECT_EQ(done, 100);
}

TEST(Worker, WorkThatPollsHearsThatItIsAbandoned) {
  Worker worker(Worker::Where::behind);
  std::promise<void> begun;
  bool never = false;
  worker.post([&] {
    begun.set_value();
    while (!worker.is_abandoned())
      std::this_thread::yield();
  });
  worker.post([&never] { never = true; });
  begun.get_future().wait();
  worker.abandon();
  EXPECT_FALSE(never);
}

}  // namespace
}  // namespace finetune::comm::worker_test
